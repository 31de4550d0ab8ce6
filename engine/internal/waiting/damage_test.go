package waiting

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestMissingSegment removes a segment between two others. The ranges in it are lost, so Open must
// return an error.
func TestMissingSegment(t *testing.T) {
	m := vfstest.New()
	for n := range 3 { // each run begins a segment
		s, _ := openIn(t, m)
		holdOne(s, 0, int64(n))
		if _, err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Delete("/waiting/" + segmentName(2)); err != nil {
		t.Fatal(err)
	}
	dir, err := m.OpenDir("/waiting")
	if err != nil {
		t.Fatal(err)
	}
	want := segmentName(2) + " is missing: put a copy of the file back"
	for range 2 {
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		// Open removes a last segment with an incomplete header, if no other segment is missing.
		if err := m.WriteFile("/waiting/"+segmentName(3), []byte("p")); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzOpen opens stores with any contents of the last segment. If Open accepts them, a second Open
// must find the same ranges. If it refuses them, it must not change the file.
func FuzzOpen(f *testing.F) {
	m := vfstest.New()
	dir, err := m.MakeDir("/waiting", 0o700)
	if err != nil {
		f.Fatal(err)
	}
	s, err := Open(dir, Options{Boot: "boot", SinceBoot: func() time.Duration { return time.Hour }})
	if err != nil {
		f.Fatal(err)
	}
	for n := range 3 {
		r := Range{Part: part(n), Range: span(5, 9), Records: 2, Bytes: 7}
		s.Hold([]Range{r}, wait(time.Hour, 2))
		s.Settled(part(0).ID, span(6, 7), 1)
		if _, err := s.Sync(); err != nil {
			f.Fatal(err)
		}
	}
	name := "/waiting/" + segmentName(1)
	base, err := m.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(base, false)
	f.Add(base[:len(base)-3], false)
	f.Add(appendDone(nil, 0, span(5, 8)), true)
	f.Add(appendBoot(appendPart(nil, part(9)), "x"), true)
	f.Add(appendWait(nil, 1, &entry{to: 3}, due{1, 1}), true)
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		text := data
		if sealed { // a frame with arbitrary contents and a valid checksum
			frame := append(make([]byte, frameHead), data...)
			if err := new(framelog.Summer).Seal(frame, 1, int64(len(base))); err != nil {
				t.Fatal(err)
			}
			text = slices.Concat(base, frame)
		}
		m := vfstest.New()
		dir, err := m.MakeDir("/waiting", 0o700)
		if err == nil {
			err = m.WriteFile(name, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, Options{})
		if err != nil {
			if got, _ := m.ReadFile(name); !bytes.Equal(got, text) {
				t.Fatal("a refused file was changed")
			}
			return
		}
		found := waitingIn(s)
		if _, err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		again, err := Open(dir, Options{})
		if err != nil || !slices.Equal(waitingIn(again), found) {
			t.Fatalf("reopened: %v, %v; want %v", err, waitingIn(again), found)
		}
	})
}

// waitingIn returns the waiting ranges of a store as text.
func waitingIn(s *Store) (all []string) {
	for _, p := range s.x.parts {
		if p == nil {
			continue
		}
		for _, r := range s.Ranges(p.part.ID) {
			all = append(all, fmt.Sprintf("%q %v", p.part.ID, r))
		}
	}
	return all
}
