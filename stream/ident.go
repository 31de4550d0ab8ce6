package stream

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
)

// AppendPosition appends p in the form that ids and headers use: its number and, if the position
// has a key, ~ and the key in base64url. Example: the number 7 with the key "ab" gives 7~YWI.
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

// ID returns an id derived from the batch's spans: 32 hexadecimal digits. A batch with the same
// spans has the same id after a crash. The pieces of a split batch have different ids.
func (b *Batch) ID() string {
	sum := sha256.Sum256(b.AppendSpans(nil))
	return hex.EncodeToString(sum[:16])
}

// AppendRecordID appends the id of record i: the record's partition (or the partition's
// RecordPrefix) and its position. If several records were made from one source record, the ids of
// all but the first also have the record's Sub, its number among them. If the span has an
// [Identity] for the position, the prefix and the position come from that Identity.
func (b *Batch) AppendRecordID(dst []byte, i int) []byte {
	r := &b.Records[i]
	span := &b.Spans[r.Span]
	prefix, at := cmp.Or(span.Part.RecordPrefix, span.Part.ID), r.Origin
	if e := span.identity(at.Num); e != nil {
		prefix, at = e.Prefix, Position{Num: e.position(at.Num)}
	}
	dst = append(dst, prefix...)
	dst = append(dst, '@')
	dst = AppendPosition(dst, at)
	if r.Sub > 0 {
		dst = append(dst, '.')
		dst = strconv.AppendUint(dst, uint64(r.Sub), 10)
	}
	return dst
}

// AppendShortID appends the id of record i of b, for receivers that limit the length of ids. The
// parameter most is this limit in bytes. Instead of a longer id, AppendShortID appends the SHA-256
// hash of the id, as 64 hexadecimal digits. An id is long, for example, if the position of its
// record is the cursor of a feed.
func AppendShortID(dst []byte, b *Batch, i, most int) []byte {
	n := len(dst)
	dst = b.AppendRecordID(dst, i)
	if len(dst)-n > most {
		sum := sha256.Sum256(dst[n:])
		dst = hex.AppendEncode(dst[:n], sum[:])
	}
	return dst
}

// identity returns the identity of a record at a position of the span, nil if it has none.
func (s *Span) identity(at int64) *Identity {
	n, _ := slices.BinarySearchFunc(s.Identities, at, func(e Identity, at int64) int {
		return cmp.Compare(e.To, at)
	})
	if n < len(s.Identities) && s.Identities[n].From < at {
		return &s.Identities[n]
	}
	return nil
}

// position converts a record's position in the span to the position that the record's id contains.
func (e *Identity) position(at int64) int64 {
	if at == e.To {
		return e.Last
	}
	return e.First + at - e.From
}
