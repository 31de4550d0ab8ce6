package ndjson

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/penstock-io/penstock"
)

// keys says where in the destination each of a batch's first names was written, escaped, with the comma before it, its
// quotes and the colon, so that it is copied from there the next time.
type keys [64]struct{ off, n int }

func (k *keys) appendRecord(dst []byte, b *penstock.Batch, i int) []byte {
	r := &b.Records[i]
	if !r.Parsed && r.NumFields == 0 {
		dst = append(dst, `{"message":`...)
		return append(AppendString(dst, b.Text(i)), '}')
	}
	if r.NumFields == 0 {
		return append(dst, "{}"...)
	}
	start := len(dst)
	for _, f := range b.Fields[r.Field : r.Field+r.NumFields] {
		dst = k.appendKey(dst, b, f.Name)
		switch f.Kind {
		case penstock.Text:
			dst = appendText(dst, b.Data, int(f.Off), int(f.Len))
		case penstock.Null:
			dst = append(dst, "null"...)
		default:
			dst = AppendValue(dst, f.Kind, b.Value(f))
		}
	}
	dst[start] = '{' // in place of the first comma
	return append(dst, '}')
}

// appendKey appends a comma, the name and a colon.
func (k *keys) appendKey(dst []byte, b *penstock.Batch, name uint32) []byte {
	if k == nil || int(name) >= len(k) {
		return append(AppendString(append(dst, ','), b.Names[name]), ':')
	}
	key := &k[name]
	if key.n == 0 {
		key.off = len(dst)
		dst = append(AppendString(append(dst, ','), b.Names[name]), ':')
		key.n = len(dst) - key.off
		return dst
	}
	at := len(dst)
	dst = append(dst, dst[key.off:key.off+key.n]...)
	dst[at] = ',' // where it was written it may have become the brace of its record
	return dst
}

const word = 8 // bytes that are looked at together

// appendText is AppendString for a text in an arena. It copies and looks in one go, a word at a time, past the text's end
// where there is something to read.
func appendText(dst, data []byte, off, n int) []byte {
	if len(data)-off < n+word {
		return AppendString(dst, data[off:off+n])
	}
	from := data[off : off+n+word]
	at := len(dst)
	dst = slices.Grow(dst, n+2*word)
	to := dst[at : at+n+2*word]
	to[0] = '"'
	for i := 0; i < n; i += word {
		w := binary.LittleEndian.Uint64(from[i:])
		binary.LittleEndian.PutUint64(to[i+1:], w)
		if hit := special(w); hit != 0 {
			if i += bits.TrailingZeros64(hit) / 8; i < n {
				return append(appendEscaped(dst[:at+1+i], from[i:n]), '"')
			}
			break
		}
	}
	to[n+1] = '"'
	return dst[:at+n+2]
}

// special has the top bit of the lowest byte set that may not stand in a JSON string as it is or is not ASCII; bits above
// that one mean nothing (Hacker's Delight, section 6-1). 0: there is none.
func special(w uint64) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash, del := w^(ones*'"'), w^(ones*'\\'), w^(ones*0x7F)
	return (w | (w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash | (del-ones)&^del) & tops
}
