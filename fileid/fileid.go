//penstock:pure

// Package fileid recognizes files that were renamed, rewritten or replaced. Use it to resume
// reading a file by its identity instead of its name.
//
//	known := fileid.New(first, nil) // first is a File: the stat and the head of an open file
//	...
//	if known.Match(later) {
//		resume(offset)
//	}
//
// A file may be renamed, and an inode may be reused when its file is deleted. An [ID] therefore
// consists of device, inode, birth time if the system reports one, and a hash of the file's head
// when the file was first seen. The ID of a file that was not empty still matches after the file
// has grown. No two files share an ID, provided that [New] can ask which IDs are taken.
//
// The package is pure: callers stat and read the files, and the package only compares. It runs
// under testing/synctest.
//
// # Limits
//
// If the system reports birth times with fractions of a second, a new file with a reused inode is
// recognized as new, unless both files have the same birth time and the same head. A file that was
// rewritten in place with another head counts as new, too. A file that was truncated and rewritten
// in place with the same head cannot be recognized as new. If callers see that a file has shrunk,
// they must ask for a new ID. Because the old ID is taken, [New] then raises Gen, a number that is
// part of the ID.
//
// Without such a birth time, often only the head distinguishes two files of one inode. The ID also
// holds the modification time of the file when it was first seen, so that two files with the same
// head do not share an ID. If there is no evidence that a file is the known one, [ID.Match] returns
// false. At worst, a known file is then delivered twice. The opposite error would be worse: the
// data of a new file would be lost if it were taken for a known one.
package fileid

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// MaxHead is the maximum number of bytes hashed of a file's head.
const MaxHead = 1024

// sumSize is the number of bytes that an ID keeps of the SHA-256.
const sumSize = 16

// version is the first part of the string form of an ID.
const version = "f1"

// File describes a file as observed by one stat of an open handle, and by one read of its head
// through the same handle.
type File struct {
	Dev, Ino uint64
	Birth    int64  // nanoseconds since 1970; 0 if the system reports none
	ModTime  int64  // modification time, nanoseconds since 1970; 0 if unknown
	Size     int64  // bytes
	Head     []byte // the first min(Size, MaxHead) bytes
}

// ID is the identity of a file. Compare IDs with ==. The zero ID belongs to no file.
type ID struct {
	Dev, Ino uint64
	Birth    int64         // as in File; 0 if unknown
	Len      int           // number of hashed bytes of the head, 0 to MaxHead
	Sum      [sumSize]byte // the beginning of the SHA-256 of those bytes
	// ModTime is the modification time of the file when it was first seen. It is 0 if Birth
	// distinguishes files.
	ModTime int64
	Gen     uint32 // number among IDs that are equal in all other fields, from 0
}

// Key is the part of a file's identity that stat returns and that never changes. Use it as the key
// of a table of files.
type Key struct{ Dev, Ino uint64 }

// Key returns the device and inode of the file.
func (f File) Key() Key { return Key{f.Dev, f.Ino} }

// Key returns the device and inode that the id names.
func (id ID) Key() Key { return Key{id.Dev, id.Ino} }

// New returns the ID of a file that is seen for the first time. The function taken reports whether
// an ID belongs to other data. New raises Gen until taken returns false. A nil taken means that no
// ID belongs to other data.
//
// If the file has at least MaxHead bytes and a birth time that distinguishes files, New returns the
// same ID for it after it has grown. So if a process is killed before it stores the ID, the next
// process gets the same ID.
func New(f File, taken func(ID) bool) ID {
	id := ID{Dev: f.Dev, Ino: f.Ino, Birth: f.Birth, Len: min(len(f.Head), MaxHead)}
	id.Sum = sum(f.Head[:id.Len])
	if !fine(f.Birth) {
		id.ModTime = f.ModTime
	}
	for taken != nil && taken(id) {
		id.Gen++
	}
	return id
}

// fine reports whether a birth time distinguishes two files that have had the same inode. A birth
// time does so if it is known and has a fraction of a second. Some systems count birth times in
// whole seconds, so two files may have the same one. On other systems, a birth time may be a whole
// second by chance: with a resolution of 4 ms, for one file in 250. The ID of such a file also
// holds a modification time.
func fine(birth int64) bool { return birth%1e9 != 0 }

func sum(head []byte) (s [sumSize]byte) {
	full := sha256.Sum256(head)
	copy(s[:], full[:])
	return s
}

// Match reports whether f is the file of id, unchanged or grown. Device and inode must be equal,
// the birth times must be equal if both are known, and the first Len bytes must hash to Sum.
//
// If the birth times do not distinguish files, two more rules apply. An ID without a head matches
// only an empty file. A file that holds only the head does not match if it was modified since it
// was first seen.
func (id ID) Match(f File) bool {
	if id.Dev != f.Dev || id.Ino != f.Ino || id == (ID{}) {
		return false
	}
	if id.Birth != 0 && f.Birth != 0 && id.Birth != f.Birth {
		return false
	}
	if f.Size < int64(id.Len) || len(f.Head) < id.Len || id.Len > MaxHead {
		return false
	}
	if !fine(id.Birth) || f.Birth == 0 {
		if id.Len == 0 && f.Size > 0 {
			return false
		}
		if f.Size == int64(id.Len) && id.ModTime != 0 && f.ModTime != 0 && f.ModTime != id.ModTime {
			return false
		}
	}
	return id.MatchHead(f.Head)
}

// MatchHead reports whether head begins with the hashed bytes of id's file.
func (id ID) MatchHead(head []byte) bool {
	return len(head) >= id.Len && sum(head[:id.Len]) == id.Sum
}

// Certain reports whether device, inode and birth time alone distinguish this file from all others.
func (id ID) Certain() bool { return fine(id.Birth) }

// String returns the form in which IDs are stored and sent: "f1." and five values, separated by
// dots. The values are device (hexadecimal), inode (decimal, as ls -i shows it), birth time
// (hexadecimal, "-" if unknown), head length, and hash (base64url). If there is a modification
// time, it follows after ".m", and a Gen above 0 follows after ".g". The text is printable ASCII
// without space, comma, semicolon, '@' and '"', and at most 128 bytes.
func (id ID) String() string {
	b := make([]byte, 0, 128)
	b = append(b, version...)
	b = strconv.AppendUint(append(b, '.'), id.Dev, 16)
	b = strconv.AppendUint(append(b, '.'), id.Ino, 10)
	b = append(b, '.')
	if id.Birth == 0 {
		b = append(b, '-')
	} else {
		b = strconv.AppendUint(b, uint64(id.Birth), 16)
	}
	b = strconv.AppendInt(append(b, '.'), int64(id.Len), 10)
	b = append(b, '.')
	b = base64.RawURLEncoding.AppendEncode(b, id.Sum[:])
	if id.ModTime != 0 {
		b = strconv.AppendUint(append(b, ".m"...), uint64(id.ModTime), 16)
	}
	if id.Gen != 0 {
		b = strconv.AppendUint(append(b, ".g"...), uint64(id.Gen), 10)
	}
	return string(b)
}

// Parse parses exactly the form of String: the String of the result is s.
func Parse(s string) (ID, error) {
	id, err := parse(s)
	if err == nil && id.String() != s {
		err = fmt.Errorf("its shortest form is %q", id.String())
	}
	if err != nil {
		return ID{}, fmt.Errorf("%q is not a file id: %w", s, err)
	}
	return id, nil
}

func parse(s string) (id ID, err error) {
	parts := strings.Split(s, ".")
	if len(parts) < 6 || len(parts) > 8 || parts[0] != version {
		return id, fmt.Errorf("want %s.DEVICE.INODE.BIRTH.LENGTH.HASH", version)
	}
	if id.Dev, err = strconv.ParseUint(parts[1], 16, 64); err != nil {
		return id, fmt.Errorf("device: %w", err)
	}
	if id.Ino, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
		return id, fmt.Errorf("inode: %w", err)
	}
	if parts[3] != "-" {
		if id.Birth, err = parseTime(parts[3]); err != nil {
			return id, fmt.Errorf("birth time: %w", err)
		}
	}
	if id.Len, err = strconv.Atoi(parts[4]); err != nil || id.Len < 0 || id.Len > MaxHead {
		return id, fmt.Errorf("head length is %q, want 0 to %d", parts[4], MaxHead)
	}
	hash, err := base64.RawURLEncoding.Strict().DecodeString(parts[5])
	if err != nil || len(hash) != sumSize {
		return id, fmt.Errorf("hash is %q, want %d bytes in base64url", parts[5], sumSize)
	}
	copy(id.Sum[:], hash)
	err = parseRest(&id, parts[6:])
	return id, err
}

func parseRest(id *ID, parts []string) (err error) {
	for _, p := range parts {
		if text, ok := strings.CutPrefix(p, "m"); ok {
			if id.ModTime, err = parseTime(text); err != nil {
				return fmt.Errorf("time of the last change: %w", err)
			}
			continue
		}
		text, ok := strings.CutPrefix(p, "g")
		gen, err := strconv.ParseUint(text, 10, 32)
		if !ok || err != nil {
			return fmt.Errorf("unknown part %q", p)
		}
		id.Gen = uint32(gen)
	}
	return nil
}

func parseTime(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	return int64(n), err
}
