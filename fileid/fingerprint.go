//penstock:pure

package fileid

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/penstock-io/penstock/wire"
)

const (
	// MaxBefore is the maximum number of bytes that a [Fingerprint] hashes before the reader's
	// position.
	MaxBefore = 64
	// proofSum is the number of bytes that a Fingerprint keeps of each SHA-256. Two different texts
	// have equal sums once in 2^48 cases.
	proofSum = 6
	// proofVersion stands in the high bits of the stored form's first byte.
	proofVersion = 1
	// packedVersion is the version if Packed is set.
	packedVersion = 2
)

// Fingerprint identifies the bytes that a reader has read of a file. Store it with the file's [ID].
// It has two hashes. The first is the hash of the file's head, which grows with the file up to
// MaxHead bytes. The second is the hash of the last bytes before the reader's position. If a file
// was rewritten in place with the same head, and is no shorter than before, only the second hash
// detects it. Changes of other bytes are not detected. The zero Fingerprint fits every file.
type Fingerprint struct {
	// Moved is the file that holds the data if it is not the file of the ID. Examples are a copy
	// made by a rotation, and a restored file. Zero means that the data was not moved.
	Moved      Key
	MovedBirth int64 // birth time of that file; 0 if unknown

	Head    int // hashed bytes of the head, 0 to MaxHead
	HeadSum [proofSum]byte
	At      int64 // the reader's position: everything before was read
	Len     int   // hashed bytes before At, 0 to MaxBefore
	Sum     [proofSum]byte

	// ModTime is the modification time of the file, in nanoseconds since 1970, if the position At
	// was the end of the file. Zero means that the file was longer, or that the time is unknown. If
	// a file still ends at At and has this time, it holds nothing new.
	ModTime int64
	// Packed is the size of a compressed file that was read to the end of its data. At then counts
	// decompressed bytes. Zero means that the file is not compressed, or that At is not the end.
	Packed int64
}

// WithHead returns p with the hash of head, the first bytes of the file. If head is not longer than
// the head that p has hashed, WithHead returns p unchanged.
func (p Fingerprint) WithHead(head []byte) Fingerprint {
	if n := min(len(head), MaxHead); n > p.Head {
		p.Head, p.HeadSum = n, shortSum(head[:n])
	}
	return p
}

// WithPlace returns p for another position of the reader, with ModTime and Packed set to zero. The
// parameter before has the bytes of the file directly before this position, of which at most the
// last MaxBefore are hashed.
func (p Fingerprint) WithPlace(at int64, before []byte) Fingerprint {
	before = before[max(0, len(before)-MaxBefore):]
	p.At, p.Len, p.Sum, p.ModTime, p.Packed = at, len(before), [proofSum]byte{}, 0, 0
	if p.Len > 0 {
		p.Sum = shortSum(before)
	}
	return p
}

// Wants returns the two ranges of the file that a caller must read for Fits: the first n bytes, and
// the bytes from off up to end.
func (p Fingerprint) Wants() (n int, off, end int64) { return p.Head, p.At - int64(p.Len), p.At }

// Fits reports whether the file still has the bytes that were read. head and before are the two
// ranges of Wants. A file that is too short for them does not fit.
func (p Fingerprint) Fits(head, before []byte) bool {
	return p.FitsHead(head) && len(before) == p.Len && (p.Len == 0 || shortSum(before) == p.Sum)
}

// FitsHead is Fits for the head alone.
func (p Fingerprint) FitsHead(head []byte) bool {
	return len(head) >= p.Head && (p.Head == 0 || shortSum(head[:p.Head]) == p.HeadSum)
}

func shortSum(b []byte) (s [proofSum]byte) {
	full := sha256.Sum256(b)
	copy(s[:], full[:])
	return s
}

// Parts of the stored form, in the low bits of its first byte.
const (
	proofHead = 1 << iota
	proofPlace
	proofTime
	proofMoved
	proofKnown = proofHead | proofPlace | proofTime | proofMoved
)

// String returns the stored form, which docs/formats/file-note.md describes: printable text of at
// most 98 bytes. The zero Fingerprint gives "".
func (p Fingerprint) String() string {
	if p == (Fingerprint{}) {
		return ""
	}
	b := make([]byte, 1, 60)
	b[0] = proofVersion << 4
	if p.Head > 0 {
		b[0] |= proofHead
		b = binary.AppendUvarint(b, uint64(p.Head))
		b = append(b, p.HeadSum[:]...)
	}
	if p.At > 0 || p.Len > 0 {
		b[0] |= proofPlace
		b = binary.AppendUvarint(b, uint64(p.At))
		b = append(b, byte(p.Len))
		b = append(b, p.Sum[:]...)
	}
	if p.ModTime != 0 {
		b[0] |= proofTime
		b = binary.LittleEndian.AppendUint64(b, uint64(p.ModTime))
	}
	if p.Moved != (Key{}) {
		b[0] |= proofMoved
		b = binary.AppendUvarint(b, p.Moved.Dev)
		b = binary.AppendUvarint(b, p.Moved.Ino)
		b = binary.LittleEndian.AppendUint64(b, uint64(p.MovedBirth))
	}
	if p.Packed > 0 {
		b[0] = packedVersion<<4 | b[0]&0xf
		b = binary.AppendUvarint(b, uint64(p.Packed))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseFingerprint parses exactly the form of String.
func ParseFingerprint(s string) (Fingerprint, error) {
	if s == "" {
		return Fingerprint{}, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("%q is not a file fingerprint: %w", s, err)
	}
	p, ok := parseProof(b)
	if !ok || p.String() != s {
		return Fingerprint{}, fmt.Errorf("%q is not a file fingerprint", s)
	}
	return p, nil
}

func parseProof(b []byte) (p Fingerprint, ok bool) {
	if len(b) == 0 || b[0]>>4 != proofVersion && b[0]>>4 != packedVersion ||
		b[0]&0xf&^proofKnown != 0 {
		return p, false
	}
	flags, r := b[0], wire.Reader{Rest: b[1:]}
	if flags&proofHead != 0 {
		p.Head = int(min(r.Uvarint(), MaxHead+1))
		copy(p.HeadSum[:], r.Take(proofSum))
	}
	if flags&proofPlace != 0 {
		p.At = int64(r.Uvarint())
		p.Len = int(r.Byte())
		copy(p.Sum[:], r.Take(proofSum))
	}
	if flags&proofTime != 0 {
		p.ModTime = r.Int64()
	}
	if flags&proofMoved != 0 {
		p.Moved = Key{r.Uvarint(), r.Uvarint()}
		p.MovedBirth = r.Int64()
	}
	if b[0]>>4 == packedVersion {
		p.Packed = int64(r.Uvarint())
		r.Bad = r.Bad || p.Packed <= 0
	}
	sound := p.Head <= MaxHead && p.Len <= MaxBefore && p.At >= int64(p.Len)
	return p, sound && r.Done()
}
