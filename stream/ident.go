package stream

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
)

// AppendPosition appends p in the form of ids and headers: its number and, for a keyset, ~ and the
// key in base64url.
func AppendPosition(dst []byte, p Position) []byte {
	dst = strconv.AppendInt(dst, p.Num, 10)
	if p.Key != "" {
		dst = append(dst, '~')
		dst = base64.RawURLEncoding.AppendEncode(dst, []byte(p.Key))
	}
	return dst
}

// AppendSpans appends the non-empty spans of the batch as "partition;from;to", separated by commas.
// It is the value of the header Penstock-Spans.
func (b *Batch) AppendSpans(dst []byte) []byte {
	first := true
	for i := range b.Spans {
		s := &b.Spans[i]
		if s.From == s.To {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, s.Part.ID...)
		dst = append(dst, ';')
		dst = AppendPosition(dst, s.From)
		dst = append(dst, ';')
		dst = AppendPosition(dst, s.To)
	}
	return dst
}

// ID returns an id derived from the batch's spans: 32 hexadecimal digits, equal after a crash for
// equal spans, and different for each piece.
func (b *Batch) ID() string {
	sum := sha256.Sum256(b.AppendSpans(nil))
	return hex.EncodeToString(sum[:16])
}

// AppendRecordID appends the id of record i: its partition (or the partition's RecordPrefix), its
// position and, for the nth record made from one origin, n.
func (b *Batch) AppendRecordID(dst []byte, i int) []byte {
	r := &b.Records[i]
	part := b.Spans[r.Span].Part
	dst = append(dst, cmp.Or(part.RecordPrefix, part.ID)...)
	dst = append(dst, '@')
	dst = AppendPosition(dst, r.Origin)
	if r.Sub > 0 {
		dst = append(dst, '.')
		dst = strconv.AppendUint(dst, uint64(r.Sub), 10)
	}
	return dst
}
