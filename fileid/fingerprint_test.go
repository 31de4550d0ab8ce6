package fileid_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/penstock-io/penstock/fileid"
)

// proofAt returns the fingerprint of a reader that has read text up to at.
func proofAt(text []byte, at int) fileid.Fingerprint {
	return fileid.Fingerprint{}.WithHead(text[:at]).WithPlace(int64(at),
		text[max(0, at-fileid.MaxBefore):at])
}

// holds calls Fits with the ranges of Wants. A text that is too short does not fit.
func holds(p fileid.Fingerprint, text []byte) bool {
	n, off, end := p.Wants()
	return int64(len(text)) >= max(end, int64(n)) && p.Fits(text[:n], text[off:end])
}

func TestFingerprint(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 200)
	changed := func(at int) []byte { b := bytes.Clone(long); b[at]++; return b }
	for _, tt := range []struct {
		name string
		text []byte
		at   int
		now  []byte
		want bool
	}{
		{"unchanged", long, 3000, long, true},
		{"grown", long[:2000], 2000, long, true},
		{"shrunk below the place", long, 3000, long[:2999], false},
		{"shrunk, not below the place", long, 1500, long[:1500], true},
		{"another head", long, 3000, changed(5), false},
		{"other bytes before the place", long, 3000, changed(2999), false},
		{"an equal head, rewritten and grown past the place", long, 2000,
			append(long[:1500:1500], bytes.Repeat([]byte("x"), 2000)...), false},
		{"changed where nobody hashes", long, 3000, changed(2000), true},
		{"tiny", []byte("a\n"), 2, []byte("a\nb\n"), true},
		{"tiny, another one", []byte("a\n"), 2, []byte("b\nb\n"), false},
		{"nothing was read", long, 0, []byte("other"), true},
	} {
		if got := holds(proofAt(tt.text, tt.at), tt.now); got != tt.want {
			t.Errorf("%s: Fits = %v, want %v", tt.name, got, tt.want)
		}
	}
	most := fileid.Fingerprint{
		Moved: fileid.Key{Dev: math.MaxUint64, Ino: math.MaxUint64}, MovedBirth: -1,
		Head: fileid.MaxHead,
		At:   math.MaxInt64, Len: fileid.MaxBefore, ModTime: -1,
	}
	if n := len(most.String()); n > 84 {
		t.Errorf("the longest text has %d bytes", n)
	}
	if got, err := fileid.ParseFingerprint(most.String()); got != most || err != nil {
		t.Errorf("ParseFingerprint(%q) = %+v, %v", most, got, err)
	}
	if (fileid.Fingerprint{}).String() != "" {
		t.Error("the zero fingerprint has a text")
	}
}

// TestFingerprintGrows checks that the head grows with the bytes read and that a shorter head never
// replaces a longer one.
func TestFingerprintGrows(t *testing.T) {
	text := bytes.Repeat([]byte("line\n"), 400)
	p := fileid.Fingerprint{}
	for at := 5; at <= len(text); at += 5 {
		p = p.WithHead(text[:at]).WithPlace(int64(at), text[:at])
		if want := min(at, fileid.MaxHead); p.Head != want || !holds(p, text) {
			t.Fatalf("after %d bytes the head has %d, want %d", at, p.Head, want)
		}
	}
	if q := p.WithHead(text[:3]); q != p {
		t.Error("a shorter head replaced a longer one")
	}
}

func FuzzParseFingerprint(f *testing.F) {
	f.Add("")
	f.Add(proofAt([]byte("a line\n"), 7).String())
	f.Add(fileid.Fingerprint{Moved: fileid.Key{Dev: 1, Ino: 2}, ModTime: 3}.String())
	f.Fuzz(func(t *testing.T, s string) {
		p, err := fileid.ParseFingerprint(s)
		if err == nil && p.String() != s {
			t.Fatalf("ParseFingerprint(%q).String() = %q", s, p)
		}
	})
}

// FuzzIdentity applies operations to a simple file system and checks the ID and the fingerprint
// together, as a reader does at startup. A file that was replaced, or rewritten where it was read,
// never matches. A file that only grew always matches.
func FuzzIdentity(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add([]byte{0, 0, 5, 2, 5, 1, 5, 3, 5, 4, 5})
	f.Add([]byte("append read truncate append read remove create append read"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		m := &model{rng: rand.New(rand.NewPCG(uint64(len(ops)), 7)), now: 1_700_000_000_000_000_001,
			born: birth}
		for _, op := range ops {
			m.now += 1_000_003
			m.step(op % 8)
			m.check(t)
		}
	})
}

// model is a file system with one inode, together with the ID and the fingerprint that a reader has
// stored.
type model struct {
	rng      *rand.Rand
	now      int64
	identity int // identity of the file: raised when it is recreated or rewritten
	born     int64
	wrote    int64
	text     []byte

	known       bool
	id          fileid.ID
	fingerprint fileid.Fingerprint
	was         int
	read        []byte
}

func (m *model) file() fileid.File { return file(1, m.born, m.wrote, string(m.text)) }

// step applies the operation op to the file. Rewritten content is random, so that it differs from
// the old content, apart from a common head.
func (m *model) step(op byte) {
	draw := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + m.rng.IntN(26))
		}
		return b
	}
	m.wrote = m.now
	switch op {
	case 0, 1, 2: // append
		m.text = append(m.text, draw(1+m.rng.IntN(700))...)
	case 3: // removed and recreated: the system reuses the inode
		m.identity, m.born, m.text = m.identity+1, m.now, draw(m.rng.IntN(100))
	case 4: // truncated and rewritten
		m.identity, m.text = m.identity+1, draw(m.rng.IntN(3000))
	case 5: // rewritten with an equal head, and no shorter
		head := m.text[:min(len(m.text), 1100)]
		m.text = append(bytes.Clone(head), draw(len(m.text)-len(head)+100)...)
		if m.identity != m.was || len(m.read) > len(head) || m.id.Len > len(head) {
			m.identity++
		} // else the bytes read are unchanged: the rewrite cannot be detected, and nothing is lost
	case 6, 7: // the reader reads, and saves
		if len(m.text) == 0 {
			return
		}
		if !m.known || m.was != m.identity {
			m.id = fileid.New(m.file(), func(id fileid.ID) bool { return m.known && id == m.id })
		}
		at := 1 + m.rng.IntN(len(m.text))
		if m.known && m.was == m.identity {
			at = max(at, len(m.read))
		}
		m.known, m.was, m.read, m.fingerprint = true, m.identity, bytes.Clone(m.text[:at]),
			proofAt(m.text, at)
	}
}

// check compares ID and fingerprint with the model, as a reader does at startup.
func (m *model) check(t *testing.T) {
	t.Helper()
	if !m.known {
		return
	}
	taken := m.id.Match(m.file()) && holds(m.fingerprint, m.text)
	switch same := m.was == m.identity; {
	case same && bytes.HasPrefix(m.text, m.read) && !taken:
		t.Fatalf("a file that only grew is taken for another one: id %v, "+
			"fingerprint %+v, %d bytes", m.id,
			m.fingerprint, len(m.text))
	case taken && !bytes.HasPrefix(m.text, m.read):
		t.Fatalf("a file that was rewritten is taken for the known one: id %v, fingerprint %+v, %d bytes",
			m.id, m.fingerprint, len(m.text))
	}
}
