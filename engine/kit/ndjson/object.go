package ndjson

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

const (
	word     = 8  // bytes that are checked together
	keyBytes = 24 // maximum size of a cached key
)

// keys caches the first 64 field names of a batch (Batch.Names) in encoded form: a comma, the
// escaped name in quotes, and a colon. appendKey copies all keyBytes bytes of a cached key, because
// a copy of fixed size is faster. The value that follows overwrites the bytes after the colon.
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
		dst = k.appendKey(dst, b, f.Name)
		switch f.Kind {
		case stream.Text:
			dst = appendText(dst, b.Data, int(f.Off), int(f.Len))
		case stream.Null:
			dst = append(dst, "null"...)
		default:
			dst = AppendValue(dst, f.Kind, b.Value(f))
		}
	}
	dst[start] = '{' // in place of the first comma
	return append(dst, '}')
}

// appendKey appends a comma, the name in quotes and a colon.
func (k *keys) appendKey(dst []byte, b *stream.Batch, name uint32) []byte {
	if k == nil || int(name) >= len(k) {
		return append(AppendString(append(dst, ','), b.Names[name]), ':')
	}
	key := &k[name]
	at := len(dst)
	if key.n == 0 {
		dst = append(AppendString(append(dst, ','), b.Names[name]), ':')
		key.n = len(dst) - at
		copy(key.text[:], dst[at:])
		return dst
	}
	if key.n > keyBytes {
		return append(AppendString(append(dst, ','), b.Names[name]), ':')
	}
	if cap(dst)-at < keyBytes {
		dst = slices.Grow(dst, keyBytes)
	}
	*(*[keyBytes]byte)(dst[at : at+keyBytes]) = key.text
	return dst[:at+key.n]
}

// appendText is AppendString for a text in a batch's data. It checks and copies eight bytes at a
// time. It may read bytes after the text's end, but not after the end of data.
func appendText(dst, data []byte, off, n int) []byte {
	if len(data)-off < n+word {
		return AppendString(dst, data[off:off+n])
	}
	from := data[off : off+n+word]
	at := len(dst)
	if cap(dst)-at < n+2*word {
		dst = slices.Grow(dst, n+2*word)
	}
	dst = append(dst, '"')
	to := dst[at+1 : at+n+2*word]
	for i := 0; i < n; i += word {
		w := binary.LittleEndian.Uint64(from[i:])
		binary.LittleEndian.PutUint64(to[i:], w)
		if hit := special(w); hit != 0 {
			if i += bits.TrailingZeros64(hit) / 8; i < n {
				return append(appendEscaped(dst[:at+1+i], from[i:n]), '"')
			}
			break
		}
	}
	to[n] = '"'
	return dst[:at+n+2]
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
