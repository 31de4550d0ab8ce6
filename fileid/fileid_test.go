package fileid_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/fileid"
)

const birth = 1_700_000_000_123_456_789

func file(ino uint64, born, changed int64, text string) fileid.File {
	return fileid.File{
		Dev: 7, Ino: ino, Birth: born, ModTime: changed, Size: int64(len(text)),
		Head: []byte(text)[:min(len(text), fileid.MaxHead)],
	}
}

func TestMatch(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 100)
	const whole = 1_700_000_000_000_000_000 // a birth time in whole seconds
	for _, tt := range []struct {
		name       string
		known, now fileid.File
		want       bool
	}{
		{"unchanged", file(1, birth, 5, "a\n"), file(1, birth, 5, "a\n"), true},
		{"grown", file(1, birth, 5, "a\n"), file(1, birth, 6, "a\nb\n"), true},
		{"grown from nothing", file(1, birth, 5, ""), file(1, birth, 6, "a\n"), true},
		{"grown beyond the head", file(1, birth, 5, long), file(1, birth, 6, long+"x"), true},
		{"touched", file(1, birth, 5, "a\n"), file(1, birth, 6, "a\n"), true},
		{"shrunk", file(1, birth, 5, "a\nb\n"), file(1, birth, 6, "a\n"), false},
		{"rewritten", file(1, birth, 5, "a\n"), file(1, birth, 6, "b\n"), false},
		{"rewritten and longer", file(1, birth, 5, "a\n"), file(1, birth, 6, "b\nb\nb\n"), false},
		{"changed beyond the head", file(1, birth, 5, long),
			file(1, birth, 6, long[:1500]+strings.ToUpper(long[1500:])), true},
		{"other inode", file(1, birth, 5, "a\n"), file(2, birth, 5, "a\n"), false},
		{"inode used again, same content", file(1, birth, 5, "a\n"), file(1, birth+1, 5, "a\n"),
			false},
		{"inode used again, both empty", file(1, birth, 5, ""), file(1, birth+1, 5, ""), false},
		{"inode used again in the same second", file(1, birth, 5, ""),
			file(1, birth+4_000_000, 5, "a\n"), false},
		{"birth not known now", file(1, birth, 5, "a\n"), file(1, 0, 5, "a\n"), true},
		{"birth not known then", file(1, 0, 5, "a\n"), file(1, birth, 5, "a\n"), true},
		{"no birth: unchanged", file(1, 0, 5, "a\n"), file(1, 0, 5, "a\n"), true},
		{"no birth: grown", file(1, 0, 5, "a\n"), file(1, 0, 6, "a\nb\n"), true},
		{"no birth: same content, written again", file(1, 0, 5, "a\n"), file(1, 0, 6, "a\n"),
			false},
		{"no birth: still empty", file(1, 0, 5, ""), file(1, 0, 5, ""), true},
		{"no birth: an empty one says nothing of a full one", file(1, 0, 5, ""),
			file(1, 0, 6, "a\n"), false},
		{"whole seconds: same content, written again", file(1, whole, 5, "a\n"),
			file(1, whole, 6, "a\n"), false},
		{"whole seconds: grown", file(1, whole, 5, "a\n"), file(1, whole, 6, "a\nb\n"), true},
		{"head not read", file(1, birth, 5, "a\n"),
			fileid.File{Dev: 7, Ino: 1, Birth: birth, Size: 2}, false},
	} {
		id := fileid.New(tt.known, nil)
		if got := id.Match(tt.now); got != tt.want {
			t.Errorf("%s: Match = %v, want %v (id %v)", tt.name, got, tt.want, id)
		}
		if !id.Match(tt.known) {
			t.Errorf("%s: %v does not match the file that it was given to", tt.name, id)
		}
	}
	if (fileid.ID{}).Match(fileid.File{}) {
		t.Error("the zero ID matches a file")
	}
}

// TestNewIsUnique checks that two files never share an ID, even with equal device, inode, birth
// second and head.
func TestNewIsUnique(t *testing.T) {
	given := make(map[fileid.ID]bool)
	taken := func(id fileid.ID) bool { return given[id] }
	for _, f := range []fileid.File{
		file(1, birth, 5, "a\n"), file(1, birth, 5, "a\n"), file(1, birth, 9, "a\n"),
		file(1, birth+1, 5, "a\n"),
		file(1, 0, 5, "a\n"), file(1, 0, 6, "a\n"), file(1, 0, 6, "a\n"), file(1, birth, 5, ""),
		file(1, birth, 5, ""),
	} {
		id := fileid.New(f, taken)
		if given[id] {
			t.Errorf("%v was given twice", id)
		}
		given[id] = true
	}
	texts := make(map[string]bool)
	for id := range given {
		texts[id.String()] = true
	}
	if len(texts) != len(given) {
		t.Errorf("%d ids have %d texts", len(given), len(texts))
	}
	// Without birth times, the modification time distinguishes IDs, even if taken is nil.
	if fileid.New(file(1, 0, 5, "a\n"), nil) == fileid.New(file(1, 0, 6, "a\n"), nil) {
		t.Error("two files without birth times share an id")
	}
	// With birth times, the ID of a complete head does not depend on the modification time.
	if fileid.New(file(1, birth, 5, "a\n"), nil) != fileid.New(file(1, birth, 6, "a\n"), nil) {
		t.Error("the id of one file depends on when it was changed")
	}
}

func TestString(t *testing.T) {
	id := fileid.New(file(123456, birth, 5, "a\n"), nil)
	if got, want := id.String(),
		"f1.7.123456.17979cfe3d85cd15.2.h0KPxSKAPTEGXnvOPPA_5A"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
	full := fileid.ID{Dev: ^uint64(0), Ino: ^uint64(0), Birth: -1, Len: fileid.MaxHead, ModTime: -1,
		Gen: ^uint32(0)}
	if n := len(full.String()); n > 128 {
		t.Errorf("the longest text has %d bytes: %v", n, full)
	}
	for _, bad := range []string{"", "f1", "f2.7.1.-.0.AAAAAAAAAAAAAAAAAAAAAA",
		"f1.7.1.-.2000.AAAAAAAAAAAAAAAAAAAAAA", "f1.7.1.-.1.short",
		"f1.07.1.-.1.AAAAAAAAAAAAAAAAAAAAAA", "f1.7.1.-.1.AAAAAAAAAAAAAAAAAAAAAA.x1",
		"f1.7.1.-.1.AAAAAAAAAAAAAAAAAAAAAA.g0"} {
		if id, err := fileid.Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", bad, id)
		} else if !strings.Contains(err.Error(), "is not a file id") {
			t.Errorf("Parse(%q): %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("f1.7.123456.17979cfe3d85cd15.2.h0KPxSKAPTEGXnvOPPA_5A")
	f.Add("f1.7.1.-.0.AAAAAAAAAAAAAAAAAAAAAA.m5.g3")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := fileid.Parse(s)
		if err != nil {
			return
		}
		if id.String() != s {
			t.Fatalf("Parse(%q).String() = %q", s, id)
		}
		for _, c := range []byte(s) {
			if c <= ' ' || c > '~' || strings.ContainsRune(`,;@"`, rune(c)) {
				t.Fatalf("%q holds %q", s, c)
			}
		}
	})
}

// disk is a simple file system of a few inodes. It gives each file a number, with which a test
// checks the identities that package fileid finds.
type disk struct {
	rng   *rand.Rand
	now   int64
	grain int64 // of birth times; 0: there are none
	next  int   // identity of the next file
	file  [3]int
	born  [3]int64
	wrote [3]int64
	text  [3][]byte
}

func (d *disk) see(i int) fileid.File {
	f := file(uint64(i+1), 0, d.wrote[i], string(d.text[i]))
	if d.grain > 0 {
		f.Birth = d.born[i] / d.grain * d.grain
	}
	return f
}

func (d *disk) step() {
	i := d.rng.IntN(len(d.file))
	d.now += 1 + d.rng.Int64N(2e9)
	d.wrote[i] = d.now
	switch d.rng.IntN(4) {
	case 0: // removed, and the inode is used again
		d.next++
		d.file[i], d.born[i], d.text[i] = d.next, d.now, nil
		fallthrough
	default:
		for range d.rng.IntN(3) {
			d.text[i] = append(d.text[i],
				bytes.Repeat([]byte{byte('a' + d.rng.IntN(2))}, 1+d.rng.IntN(400))...)
		}
	}
}

// FuzzModel checks that a file that only grew is always recognized if birth times are fine-grained.
// Another file never matches, and no two files share an ID.
func FuzzModel(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, kind uint8) {
		grain := []int64{1, 4e6, 1e9, 0}[kind%4]
		d := &disk{rng: rand.New(rand.NewPCG(seed, 1)), now: birth, grain: grain}
		for i := range d.file {
			d.next++
			d.file[i], d.born[i] = d.next, d.now
		}
		type known struct {
			id   fileid.ID
			file int
		}
		var ids []known
		taken := func(id fileid.ID) bool {
			for _, k := range ids {
				if k.id == id {
					return true
				}
			}
			return false
		}
		for step := range 60 {
			d.step()
			for i := range d.file {
				seen := d.see(i)
				matched := false
				for _, k := range ids {
					if !k.id.Match(seen) {
						continue
					}
					if k.file != d.file[i] && grain > 0 && grain < 1e9 {
						t.Fatalf("step %d: file %d is taken for file %d by %v", step, d.file[i],
							k.file, k.id)
					}
					matched = matched || k.file == d.file[i]
				}
				for _, k := range ids {
					fine := k.id.Birth%1e9 != 0
					if k.file == d.file[i] && fine && !matched {
						t.Fatalf("step %d: file %d, which only grew, is not known by %v", step,
							d.file[i], k.id)
					}
				}
				if !matched {
					id := fileid.New(seen, taken)
					if back, err := fileid.Parse(id.String()); err != nil || back != id {
						t.Fatal(fmt.Errorf("Parse(%v) = %v, %w", id, back, err))
					}
					ids = append(ids, known{id, d.file[i]})
				}
			}
		}
	})
}
