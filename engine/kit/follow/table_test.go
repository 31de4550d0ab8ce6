package follow

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// folderModel is a directory of inodes, some with several names. Inodes are reused.
type folderModel struct {
	rnd   *rand.Rand
	names map[string]vfs.Info
	born  int64
}

func (m *folderModel) change() {
	name := fmt.Sprint("f", m.rnd.IntN(6))
	at, has := m.names[name]
	switch m.rnd.IntN(6) {
	case 0:
		delete(m.names, name)
	case 1:
		if to := fmt.Sprint("f", m.rnd.IntN(6)); has && to != name {
			delete(m.names, name)
			m.names[to] = at
		}
	case 2:
		if has {
			m.names[fmt.Sprint("f", m.rnd.IntN(6))] = at
		}
	case 3:
		if has {
			at.Size = int64(m.rnd.IntN(10))
			for n, i := range m.names {
				if i.Ino == at.Ino {
					m.names[n] = at
				}
			}
		}
	default:
		if !has {
			m.create(name)
		}
	}
}

// create makes a file in the lowest inode that no name leads to.
func (m *folderModel) create(name string) {
	used := make(map[uint64]bool)
	for _, i := range m.names {
		used[i.Ino] = true
	}
	ino := uint64(1)
	for used[ino] {
		ino++
	}
	m.born++
	m.names[name] = vfs.Info{Ino: ino, Dev: 1, Birth: time.Unix(m.born, 1), Size: int64(m.rnd.IntN(10)), Links: 1}
}

// step lists the folder in any order, and returns the files that lost their names.
func (m *folderModel) step(t *table) (gone []*file, renamed map[*file]string) {
	renamed = make(map[*file]string)
	t.begin()
	names := slices.Collect(maps.Keys(m.names))
	slices.Sort(names)
	m.rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var rest []string
	for _, name := range names {
		if !t.see(name, statOf(m.names[name]), time.Duration(t.scans)) {
			rest = append(rest, name)
		}
	}
	for _, name := range rest {
		info := statOf(m.names[name])
		change, f := t.resolve(Listed{Name: name, Label: name, Info: m.names[name]}, info,
			time.Duration(t.scans))
		switch change {
		case isRenamed:
			renamed[f] = f.label
			f.label = name
			f.update(info, time.Duration(t.scans))
		case isNew:
			f.label = name
		}
	}
	return t.unlisted(), renamed
}

// FuzzTable compares the decisions of the table with the listed folder: each inode is one file,
// however often it is renamed, and each file that has no name any more is reported once.
func FuzzTable(f *testing.F) {
	for seed := range uint64(50) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		m := &folderModel{rnd: rand.New(rand.NewPCG(seed, 0)), names: make(map[string]vfs.Info)}
		tab := newTable()
		for range 100 {
			for range m.rnd.IntN(4) {
				m.change()
			}
			before := maps.Clone(tab.byKey)
			gone, renamed := m.step(&tab)
			for _, g := range gone { // the caller stops reading them
				if m.names[g.label].Ino == g.info.Ino &&
					sameFile(statOf(m.names[g.label]), g.info) && tab.byLabel[g.label] == g {
					t.Fatalf("seed %d: %s is reported as gone, and is there", seed, g.label)
				}
				tab.remove(g)
			}
			m.check(t, &tab, before, renamed)
		}
	})
}

func (m *folderModel) check(t *testing.T, tab *table, before map[fileid.Key]*file, renamed map[*file]string) {
	t.Helper()
	inodes := make(map[uint64]bool)
	for name, info := range m.names {
		inodes[info.Ino] = true
		f := tab.byKey[keyOf(statOf(info))]
		switch {
		case f == nil:
			t.Fatalf("inode %d, %s, is not known", info.Ino, name)
		case !sameFile(f.info, statOf(info)) || f.info.Size != info.Size:
			t.Fatalf("inode %d is known as it was: %+v", info.Ino, f.info)
		case tab.byLabel[f.label] != f || m.names[f.label].Ino != info.Ino:
			t.Fatalf("inode %d has the label %s, which leads elsewhere", info.Ino, f.label)
		}
		if old := before[keyOf(statOf(info))]; old != nil && sameFile(old.info, f.info) && old != f {
			t.Fatalf("inode %d became another file", info.Ino)
		}
	}
	if len(tab.byKey) != len(inodes) || len(tab.byLabel) != len(inodes) {
		t.Fatalf("%d files by inode, %d by label, want %d", len(tab.byKey), len(tab.byLabel), len(inodes))
	}
	for f := range renamed {
		if before[keyOf(f.info)] != f {
			t.Fatalf("%s is renamed, and was not known", f.label)
		}
	}
}

// TestTableCompact checks that a table of which most files were removed takes less memory.
func TestTableCompact(t *testing.T) {
	tab := newTable()
	files := make([]*file, 200_000)
	for i := range files {
		s := Listed{Name: fmt.Sprint("f", i), Label: fmt.Sprint("f", i)}
		_, files[i] = tab.resolve(s, stat{Dev: 1, Ino: uint64(i) + 1}, 0)
	}
	tab.compact()
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	for _, f := range files[1000:] {
		tab.remove(f)
	}
	tab.compact()
	after := held()
	runtime.KeepAlive(files)
	// The two maps take at least 24 bytes for each file.
	if want := before - 2*24*150_000; after > want {
		t.Errorf("the heap has %d bytes, and had %d before most files were removed; want at most %d",
			after, before, want)
	}
	if len(tab.byLabel) != 1000 || len(tab.byKey) != 1000 {
		t.Errorf("%d labels and %d inodes are left, want 1000", len(tab.byLabel), len(tab.byKey))
	}
	if !tab.has(files[0]) || tab.byLabel["f999"] != files[999] {
		t.Error("a file that was not removed is missing")
	}
}
