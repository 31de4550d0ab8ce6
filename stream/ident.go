package stream

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
)

// AppendPosition appends p in the form that ids and headers use: its number, then, for a keyset, ~
// and its key in base64url.
func AppendPosition(dst []byte, p Position) []byte {
	dst = strconv.AppendInt(dst, p.Num, 10)
	if p.Key != "" {
		dst = append(dst, '~')
		dst = base64.RawURLEncoding.AppendEncode(dst, []byte(p.Key))
	}
	return dst
}

// AppendSpans appends what the batch covers: "partition;from;to" for each span that covers
// anything, joined by commas. It is what the header Penstock-Spans holds.
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

// ID names the batch by what it covers: 32 hexadecimal digits, the same after a crash for the same
// spans, different for each piece.
func (b *Batch) ID() string {
	sum := sha256.Sum256(b.AppendSpans(nil))
	return hex.EncodeToString(sum[:16])
}

// AppendRecordID appends the id of record i: its partition, position and, for the nth record made
// from one origin, n.
func (b *Batch) AppendRecordID(dst []byte, i int) []byte {
	r := &b.Records[i]
	dst = append(dst, b.Spans[r.Span].Part.ID...)
	dst = append(dst, '@')
	dst = AppendPosition(dst, r.Origin)
	if r.Sub > 0 {
		dst = append(dst, '.')
		dst = strconv.AppendUint(dst, uint64(r.Sub), 10)
	}
	return dst
}
