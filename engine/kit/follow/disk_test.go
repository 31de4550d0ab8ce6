package follow_test

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/vfs"
)

// disk is a directory in memory that reuses inodes. A seed decides everything that a file system
// leaves open: the order of a listing, the inode of a new file, and the resolution of creation
// times. Only one goroutine uses it.
type disk struct {
	vfs.Dir // nil: methods that are not overridden are not called
	rnd     *rand.Rand
	names   map[string]*inode
	inodes  []*inode // named or open ones, by number
	grain   time.Duration
	reuses  bool
	at      time.Time // of the last change; no two changes have the same time
	last    uint64
}

type inode struct {
	number        uint64
	born, changed time.Time
	text          []byte
	links, opened int
}

func newDisk(seed uint64) *disk {
	d := &disk{rnd: rand.New(rand.NewPCG(seed, 1)), names: make(map[string]*inode)}
	d.reuses = d.rnd.IntN(4) > 0
	d.grain = []time.Duration{time.Microsecond, 4 * time.Millisecond}[d.rnd.IntN(2)]
	return d
}

// file returns the inode that name leads to. It creates one if there is none.
func (d *disk) file(name string) *inode {
	if n := d.names[name]; n != nil {
		return n
	}
	d.last++
	n := &inode{number: d.last, changed: d.now(), links: 1}
	n.born = n.changed.Truncate(d.grain).Add(1)
	if d.reuses {
		for n.number = 1; slices.ContainsFunc(d.inodes, func(o *inode) bool { return o.number == n.number }); {
			n.number++
		}
	}
	d.inodes = append(d.inodes, n)
	d.names[name] = n
	return n
}

// now returns a new, unique time for a change.
func (d *disk) now() time.Time {
	if d.at = d.at.Add(time.Microsecond); d.at.Before(time.Now()) {
		d.at = time.Now()
	}
	return d.at
}

// write replaces the content of a file.
func (d *disk) write(name string, text []byte) {
	n := d.file(name)
	n.text, n.changed = text, d.now()
}

func (d *disk) rename(from, to string) {
	if d.names[to] != nil {
		d.remove(to)
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
}

func (d *disk) remove(name string) {
	d.names[name].links--
	d.free(d.names[name])
	delete(d.names, name)
}

func (d *disk) free(n *inode) {
	if n.links == 0 && n.opened == 0 {
		d.inodes = slices.DeleteFunc(d.inodes, func(o *inode) bool { return o == n })
	}
}

// waits reports whether the route still waits for data that the inode has or had: the route has
// stored a mark of this data without Finished. Marks of data that has moved to another inode, or
// that the catalogue has given up, do not count.
func (r *route) waits(n *inode) bool {
	for _, m := range r.marks {
		id, err := fileid.Parse(m.Part.ID)
		fingerprint, noted := fileid.ParseFingerprint(m.Metadata)
		moved := err != nil || noted != nil || fingerprint.Moved != (fileid.Key{})
		if !moved && !m.Finished && !r.HasEnded(m.Part.ID) && id.Ino == n.number && id.Birth == n.born.UnixNano() {
			return true
		}
	}
	return false
}

func (n *inode) info(name string) vfs.Info {
	return vfs.Info{
		Name: name, Size: int64(len(n.text)), ModTime: n.changed, Dev: 1, Ino: n.number,
		Birth: n.born, Links: uint64(n.links),
	}
}

func (d *disk) Entries(string) (list []vfs.Entry, err error) {
	for name := range d.names {
		list = append(list, vfs.Entry{Name: name})
	}
	slices.SortFunc(list, func(a, b vfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	d.rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list, nil
}

func (d *disk) Stat(name string) (vfs.Info, error) {
	n := d.names[name]
	if n == nil {
		return vfs.Info{}, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return n.info(name), nil
}

func (d *disk) Open(name string) (vfs.File, error) {
	n := d.names[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	n.opened++
	return &diskFile{d: d, n: n, name: name}, nil
}

// diskFile is an open file of a disk.
type diskFile struct {
	vfs.File // nil, as in disk
	d        *disk
	n        *inode
	name     string
	closed   bool
}

func (f *diskFile) Stat() (vfs.Info, error) { return f.n.info(f.name), nil }

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, f.n.text[min(off, int64(len(f.n.text))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *diskFile) Close() error {
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	f.n.opened--
	f.d.free(f.n)
	return nil
}
