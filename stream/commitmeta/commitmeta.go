// Package commitmeta encodes settled ranges as text. For each partition, a broker such as Kafka
// stores one offset, before which everything is settled, and a metadata text. If a later record
// settles before an earlier one, its range lies above the offset. This package puts such ranges in
// the metadata text, so that a restart does not deliver them again.
//
// Example: the offset 500 and a text with the range (700, 900] mean that a restart reads the
// offsets 500 to 699, and everything from 900 on. The record with the offset 700 is (700, 701].
//
// The text contains a checksum over the partition's id and the offset. Decode therefore rejects
// text that other software wrote or that belongs to another offset. docs/formats/commit-metadata.md
// describes the format. The package is pure, safe for concurrent use, and runs under
// testing/synctest.
package commitmeta

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/wire"
)

// DefaultLimit is the length of text that a Kafka broker accepts by default
// (offset.metadata.max.bytes).
const DefaultLimit = 4096

const (
	magic       = "penstock1."
	checksumLen = 4
	maxText     = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the text for m, of at most limit bytes, and the ranges in the text. If not all
// ranges of m.Above fit, the text has the lowest ones. The text is valid only together with the
// offset m.Watermark.Num, which the caller must commit. A limit below [MinLimit] counts as
// MinLimit.
func Encode(m stream.Mark, limit int) (text string, stored []stream.Range) {
	room := base64.RawURLEncoding.DecodedLen(max(limit, MinLimit) - len(magic))
	payload := make([]byte, checksumLen, room)
	at := m.Watermark.Num
	for _, r := range m.Above {
		var pair [2 * binary.MaxVarintLen64]byte
		n := binary.PutUvarint(pair[:], uint64(r.From.Num-at))
		n += binary.PutUvarint(pair[n:], uint64(r.To.Num-r.From.Num))
		if len(payload)+n > room {
			break
		}
		payload = append(payload, pair[:n]...)
		at = r.To.Num
		stored = append(stored, r)
	}
	binary.BigEndian.PutUint32(payload, checksum(m.Part.ID, m.Watermark.Num, payload[checksumLen:]))
	return magic + base64.RawURLEncoding.EncodeToString(payload), stored
}

// MinLimit is the length of a text without ranges.
const MinLimit = len(magic) + 6

// Decode returns the ranges in text, and true if Encode made the text for this partition and
// offset. Otherwise it returns no ranges, and false.
func Decode(text, partitionID string, offset int64) (above []stream.Range, own bool) {
	coded, found := strings.CutPrefix(text, magic)
	if !found || len(text) > maxText {
		return nil, false
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(coded)
	if err != nil || len(payload) < checksumLen {
		return nil, false
	}
	rest := payload[checksumLen:]
	if binary.BigEndian.Uint32(payload) != checksum(partitionID, offset, rest) {
		return nil, false
	}
	at := offset
	for r := (wire.Reader{Rest: rest}); len(r.Rest) > 0; {
		var ends [2]int64
		for i := range ends {
			step := r.Uvarint()
			if r.Bad || step > uint64(math.MaxInt64-max(at, 0)) || i == 1 && step == 0 {
				return nil, false
			}
			at += int64(step)
			ends[i] = at
		}
		above = append(above, stream.Range{From: stream.Position{Num: ends[0]},
			To: stream.Position{Num: ends[1]}})
	}
	return above, true
}

// IsOurs reports whether text begins like a text of Encode. It does not verify the checksum.
func IsOurs(text string) bool { return strings.HasPrefix(text, magic) }

func checksum(partitionID string, offset int64, payload []byte) uint32 {
	var fixed [9]byte
	binary.BigEndian.PutUint64(fixed[1:], uint64(offset))
	sum := crc32.Update(0, castagnoli, []byte(partitionID))
	sum = crc32.Update(sum, castagnoli, fixed[:])
	return crc32.Update(sum, castagnoli, payload)
}
