package ndjson

import "github.com/penstock-io/penstock/stream"

const (
	word     = 8  // bytes that are checked together
	keyBytes = 24 // maximum size of a cached key
)

// keys caches the first 64 field names of a batch (Batch.Names) in encoded form: a comma, the
// escaped name in quotes, and a colon. The method quick copies all keyBytes bytes of a cached key,
// because a copy of fixed size is faster. The value that follows overwrites the bytes after the
// colon.
type keys [64]key

type key struct {
	text [keyBytes]byte
	n    int // 0 if not encoded yet; more than keyBytes if too long for the cache
}

func (k *keys) appendRecord(dst []byte, b *stream.Batch, i int) []byte {
	r := &b.Records[i]
	if !r.Parsed && r.NumFields == 0 {
		dst = append(dst, `{"message":`...)
		return append(AppendString(dst, b.Text(i)), '}')
	}
	if r.NumFields == 0 {
		return append(dst, "{}"...)
	}
	start := len(dst)
	fields := b.Fields[r.Field : r.Field+r.NumFields]
	if k != nil {
		dst, fields = k.quick(dst, b, r, fields)
	}
	for _, f := range fields {
		dst = AppendValue(k.appendKey(dst, b, f.Name), f.Kind, b.Value(f))
	}
	dst[start] = '{' // in place of the first comma
	return append(dst, '}')
}

// appendKey appends a comma, the name in quotes and a colon.
func (k *keys) appendKey(dst []byte, b *stream.Batch, name uint32) []byte {
	cached := k != nil && int(name) < len(k)
	if cached && k[name].n > 0 && k[name].n <= keyBytes {
		return append(dst, k[name].text[:k[name].n]...)
	}
	at := len(dst)
	dst = append(AppendString(append(dst, ','), b.Names[name]), ':')
	if cached {
		k[name].n = len(dst) - at
		copy(k[name].text[:], dst[at:])
	}
	return dst
}

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// special looks in w, which holds eight bytes of a text, for bytes that are not ASCII or need an
// escape in a JSON string. The lowest byte with its top bit set in the result is the first such
// byte; higher bits are meaningless. The result is 0 if there is none.
func special(w uint64) uint64 { return (control(w) | quoting(w)) & tops }

// control is like special, but ignores quotes and backslashes. Only the top bit of each byte in the
// result has a meaning. The term w sets this bit if the byte is not ASCII. The term w - ones*' '
// sets it if the byte is less than a space, and w + ones if the byte is 0x7F (Hacker's Delight,
// section 6-1).
func control(w uint64) uint64 { return w | (w - ones*' ') | (w + ones) }

// quoting is like control, but looks for quotes and backslashes among bytes less than 0x80.
func quoting(w uint64) uint64 { return ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones) }
