package checkpoint

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/framelog"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// refused checks that an error names the file and a remedy, and that the file is unchanged.
func refused(t *testing.T, what string, m *vfstest.Mem, log []byte, err error) {
	t.Helper()
	if !strings.Contains(err.Error(), "/state/"+Name) || !strings.Contains(err.Error(), "move") {
		t.Errorf("%s: %v; want the file and the remedy", what, err)
	}
	if got, _ := m.ReadFile("/state/" + Name); !bytes.Equal(got, log) {
		t.Errorf("%s: the refused file was changed", what)
	}
	list, err := stateDir(t, m).Entries(".")
	if err != nil || len(list) != 1 {
		t.Errorf("%s: the directory of a refused file holds %v", what, list)
	}
}

func TestTornTailAtEveryByte(t *testing.T) {
	w := writeSteps(t, steps(rand.New(rand.NewPCG(seed, 2)), 8))
	for cut := range len(w.log) + 1 {
		for _, tail := range []int{0, 100, 5000} { // zeros that a file system appends
			log := append(slices.Clone(w.log[:cut]), make([]byte, tail)...)
			m, dir := memory(t, log)
			whole := len(w.sizes) - 1 // the removed bytes may have been zeros
			for whole >= 0 && !bytes.HasPrefix(log, w.log[:w.sizes[whole]]) {
				whole--
			}
			s, r, err := Open(dir, Options{})
			if whole < 0 {
				if err == nil {
					t.Fatalf("cut in the snapshot at %d: no error, %v", cut, r)
				}
				refused(t, "cut in the snapshot", m, log, err)
				continue
			}
			if err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
			if got := contents(s).String(); got != w.held[whole] {
				t.Fatalf("cut at %d: it holds\n%s\nwant what it held after step %d\n%s", cut, got,
					whole, w.held[whole])
			}
			if want := int64(cut+tail) - w.sizes[whole]; r.Cut != want || r.Damage != "" ||
				len(r.Aside) != 0 {
				t.Fatalf("cut at %d: report %+v, want %d bytes cut and no damage", cut, r, want)
			}
			must(t, s.Close())
			if _, r := mustOpen(t, dir, Options{}); r.Cut != 0 {
				t.Fatalf("cut at %d: opened again, it reports %v", cut, r)
			}
		}
	}
}

func TestBitFlipAtEveryByte(t *testing.T) {
	w := writeSteps(t, steps(rand.New(rand.NewPCG(seed, 3)), 5))
	set, cuts, refusals := 0, 0, 0
	for i := range w.log {
		for bit := range 8 {
			log := slices.Clone(w.log)
			log[i] ^= 1 << bit
			m, dir := memory(t, log)
			read, readReport, readErr := Read(dir)
			s, r, err := Open(dir, Options{})
			if err != nil {
				refusals++
				if int64(i) >= w.sizes[0] {
					t.Fatalf("flip of byte %d, behind the snapshot: %v", i, err)
				}
				refused(t, "flip", m, log, err)
				if readErr == nil {
					t.Fatalf("flip of byte %d: Open refuses and Read does not", i)
				}
				continue
			}
			got := contents(s).String()
			whole := 0
			for w.sizes[whole+1] <= int64(i) {
				whole++
			}
			if got != w.held[whole] || readErr != nil || read.model().String() != got {
				t.Fatalf("flip of byte %d: it holds\n%s\nwant what it held after step %d\n%s", i,
					got, whole, w.held[whole])
			}
			switch {
			case r.Damage != "":
				set++
				copied, err := m.ReadFile("/state/" + Name + ".damaged-1")
				if err != nil || !bytes.Equal(copied, log) ||
					!slices.Equal(r.Aside, []string{Name + ".damaged-1"}) {
					t.Fatalf("flip of byte %d: the damaged file is not set aside: %v, %+v",
						i, err, r)
				}
				if !strings.Contains(r.String(), "DAMAGED") ||
					r.Lost != int64(len(log))-w.sizes[whole] || readReport.Damage != r.Damage {
					t.Fatalf("flip of byte %d: report %v", i, r)
				}
			case r.Cut != 0:
				cuts++
				if whole != len(w.held)-2 {
					t.Fatalf("flip of byte %d: cut off silently, and it is not in the last entry",
						i)
				}
			default:
				t.Fatalf("flip of byte %d: not reported: %v", i, r)
			}
			must(t, s.Close())
		}
	}
	if set == 0 || cuts == 0 || refusals == 0 {
		t.Errorf("%d set aside, %d cut, %d refused; want some of each", set, cuts, refusals)
	}
}

// TestDamagedAgain damages the log repeatedly. Each time, Open must keep a copy of the damaged log.
// If there are already maxAside copies, Open must return an error with a remedy, and must not
// change the log.
func TestDamagedAgain(t *testing.T) {
	w := writeSteps(t, steps(rand.New(rand.NewPCG(seed, 4)), 8))
	log := slices.Clone(w.log)
	log[w.sizes[3]+frameHead] ^= 1
	m, dir := memory(t, log)
	for n := 1; n <= maxAside; n++ {
		must(t, m.WriteFile("/state/"+Name, log))
		s, r := mustOpen(t, dir, Options{})
		if len(r.Aside) != 1 || !strings.HasPrefix(r.Aside[0], Name+".damaged-") {
			t.Fatalf("damage %d: kept as %v", n, r.Aside)
		}
		must(t, s.Close())
	}
	must(t, m.WriteFile("/state/"+Name, log))
	if _, _, err := Open(dir, Options{}); err == nil ||
		!strings.Contains(err.Error(), "remove some") {
		t.Errorf("Open with %d copies = %v; want a remedy", maxAside, err)
	}
	if got, _ := m.ReadFile("/state/" + Name); !bytes.Equal(got, log) {
		t.Error("the file that could not be set aside was changed")
	}
}

// TestAHoleBehindGoodBytes zeroes a block in the middle of the log.
func TestAHoleBehindGoodBytes(t *testing.T) {
	w := writeSteps(t, steps(rand.New(rand.NewPCG(seed, 5)), 400))
	log := slices.Clone(w.log)
	clear(log[4096:8192])
	_, dir := memory(t, log)
	s, r := mustOpen(t, dir, Options{})
	whole, ok := slices.BinarySearch(w.sizes, 4096)
	if !ok {
		whole--
	}
	if got := contents(s).String(); got != w.held[whole] || r.Damage == "" {
		t.Errorf("a hole: report %v, or it does not hold what stands before it", r)
	}
}

// TestBytesOfAnotherPlace moves a valid entry to another position. There the entry must be invalid,
// because its checksum also covers its position and the generation of the file.
func TestBytesOfAnotherPlace(t *testing.T) {
	list := steps(rand.New(rand.NewPCG(seed, 6)), 1)
	list = append(list, list[0], list[0], list[0])
	w := writeSteps(t, list)
	// one of several equal entries is missing
	moved := slices.Concat(w.log[:w.sizes[1]], w.log[w.sizes[2]:])
	_, dir := memory(t, moved)
	s, r := mustOpen(t, dir, Options{})
	if got := contents(s).String(); got != w.held[1] || r.Cut != w.sizes[4]-w.sizes[2] {
		t.Errorf("entries that moved were taken: %v", r)
	}
}

func FuzzOpen(f *testing.F) {
	w := writeSteps(f, steps(rand.New(rand.NewPCG(seed, 7)), 10))
	f.Add(w.log, false)
	f.Add(w.log[:len(w.log)-3], false)
	f.Add(w.log[:headerSize], false)
	f.Add([]byte{}, false)
	e := entry{key: "r", marks: []markOp{{mark: randomMark(rand.New(rand.NewPCG(1, 1)))}},
		places: []placeOp{{name: "l", place: "p"}}}
	f.Add(appendEntry(nil, &e), true)
	f.Add(appendForget(nil, &forget{route: 1, parts: []int{1}}), true)
	f.Add(appendEnd(nil, 1, 1), true)
	base := w.log[:w.sizes[5]]
	f.Fuzz(func(t *testing.T, data []byte, sealed bool) {
		log := data
		if sealed { // an entry with arbitrary contents and a valid checksum
			if len(data) == 0 {
				return
			}
			frame := append(make([]byte, frameHead), data...)
			must(t, new(framelog.Summer).Seal(frame, 1, int64(len(base))))
			log = slices.Concat(base, frame)
		}
		m, dir := memory(t, log)
		s, r, err := Open(dir, Options{})
		if err != nil {
			if got, _ := m.ReadFile("/state/" + Name); !bytes.Equal(got, log) {
				t.Fatal("a refused file was changed")
			}
			return
		}
		held := contents(s)
		if r.Fresh || r.Marks > len(log) {
			t.Fatalf("report %+v of %d bytes", r, len(log))
		}
		st := steps(rand.New(rand.NewPCG(seed, 8)), 3)
		for i := range st {
			must(t, st[i].on(s))
			st[i].onModel(held)
		}
		if got := contents(s).String(); got != held.String() {
			t.Fatalf("after more steps it holds\n%s\nwant\n%s", got, held)
		}
		must(t, s.Close())
		again, r := mustOpen(t, dir, Options{})
		if got := contents(again).String(); got != held.String() || r.Damage != "" || r.Cut != 0 {
			t.Fatalf("reopened (%v) it holds\n%s\nwant\n%s", r, got, held)
		}
	})
}

func TestRefusesWhatIsNoFile(t *testing.T) {
	m := vfstest.New()
	dir := stateDir(t, m)
	must(t, m.Symlink("elsewhere", "/state/"+Name))
	if _, _, err := Open(dir, Options{}); err == nil ||
		!strings.Contains(err.Error(), vfs.ErrNotRegular.Error()) {
		t.Errorf("Open of a symlink = %v, want ErrNotRegular", err)
	}
}
