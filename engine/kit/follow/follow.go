// Package follow reads many files as the batches of one reader, for the sources whose data are
// files in directories: spool_dir, whose files are complete one day, and tail, whose files grow and
// are rotated.
//
// It gives each file an identity that does not depend on its name (package fileid), cuts it into
// aligned batches (package lines), notices files that grow, shrink, are rewritten, renamed, copied
// away or deleted, and seals those to which nothing will be added. Its owner is a source, which
// says where files lie ([Place]) and what becomes of finished ones; a [Set] is what the readers of
// all routes share, a [Reader] is one route's. It opens only what its Place names, changes nothing
// in any directory, and hides nothing: what cannot be read to its end is reported.
package follow

import (
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Sight is one regular file as a listing saw it.
type Sight struct {
	Dir   Dir    // through which it is opened
	Name  string // beneath Dir
	Label string // for people, the partition's name; one file each, as long as names stay
	Info  vfs.Info
}

// Dir opens and stats files by their names in it, as a vfs.Dir does.
type Dir interface {
	Open(name string) (vfs.File, error)
	Stat(name string) (vfs.Info, error)
}

// Place is where a source's files lie. Readers of several routes call it at once.
type Place interface {
	// List calls found with each regular file that is to be read, and refused with each thing that is
	// left alone, and why. An error: nothing is known, what was known stays.
	List(found func(Sight), refused func(label, why string)) error
	// Finished calls found with the files that the source has finished and that still have a name.
	Finished(found func(Sight)) error
	// Beside calls found with every regular file in the directory of a label, wanted or not. A
	// directory that is gone has none.
	Beside(label string, found func(Sight)) error
}

// Options of a Set. Zero values are not replaced by defaults: the source's options have theirs.
type Options struct {
	Rules     lines.Rules
	ByName    bool          // read in the order of labels; else the least recently changed first
	Settle    time.Duration // a file counts as quiet when it has not changed for so long
	PollMin   time.Duration // the first wait of an idle reader before it lists again; it doubles
	PollMax   time.Duration // the longest
	Watch     time.Duration // how long a finished file is looked at again, ever more rarely
	OpenFiles int           // files held open at once, at most
	Keep      bool          // finished files stay where they are: a sealed one that was not changed need not be read again
	Forget    time.Duration // how long a file has to be gone before its mark is dropped
	Identity  Identity      // how a file of an earlier run is recognised

	ByHead func(head []byte) lines.Framing // which framing a file has that begins so; nil: all have that of Rules
	Packed Packed                          // how compressed files are read

	Growing *Growing // files may grow for ever: they are sealed when they are gone, not when they are quiet; nil: quiet
}

// Growing are the options for files that grow.
type Growing struct {
	FromEnd       bool          // files that are there at the very first start are read from their ends on
	PartialWait   time.Duration // a last line without end is a record after so long without change; 0: never
	GoneWait      time.Duration // a file without name is at its end after so long without change
	CopyWait      time.Duration // how long a file that equals another is held back, because it may be a rotation's copy of it
	DeletedMax    int64         // bytes that deleted files may hold
	DeletedBeyond Beyond        // what is done when they hold more
}

// Beyond is what becomes of deleted files that hold more than their budget.
type Beyond uint8

// The choices when deleted files hold more than their budget.
const (
	KeepDeleted Beyond = iota // they are read to their ends all the same
	DropDeleted               // the largest are given up, unread
	StopDeleted               // the route stops
)

// Set is what the readers of all routes share: the place, and which id each file has. Its methods
// are safe for concurrent use.
type Set struct {
	o     Options
	place Place
	h     stream.Host
	log   *slog.Logger
	start time.Time // zero of the monotonic clock

	// finishing is held from the change of a file's name by its source until the readers have been
	// told. It is taken before mu.
	finishing sync.Mutex

	idle      chan struct{} // Watch: a listing has found nothing
	catalogue catalogue
	open      openLimit

	mu      sync.Mutex // guards what follows; files are not touched while it is held
	clock   clock
	readers []*Reader
	byID    map[string]*Entry
	byKey   map[fileid.Key]*Entry // the one that was made last
	gens    map[fileid.Key]generation
}

// New returns the set of a source whose messages go to log.
func New(place Place, o Options, h stream.Host, log *slog.Logger) *Set {
	s := &Set{
		o: o, place: place, h: h, log: log, start: time.Now(), clock: clock{settle: o.Settle},
		byID: make(map[string]*Entry), byKey: make(map[fileid.Key]*Entry),
		gens: make(map[fileid.Key]generation), idle: make(chan struct{}, 1),
	}
	s.open.n.Store(int64(o.OpenFiles))
	s.catalogue = catalogue{s: s, wake: make(chan struct{}, 1)}
	return s
}

// Calibrate tells the set the time of the last change that the file system gave a file which was
// written just now.
func (s *Set) Calibrate(mtime time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = clock{settle: s.o.Settle}
	s.clock.calibrate(time.Now().UnixNano(), mtime.UnixNano())
}

// now is the monotonic time since the set was made.
func (s *Set) now() time.Duration { return time.Since(s.start) }

// Open returns a reader for one route. It takes over the files of the route's last one.
func (s *Set) Open(o stream.OpenOptions) *Reader {
	r := newReader(s, o)
	s.catalogue.succeed(r)
	for _, name := range counted {
		r.count(name, 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = append(s.readers, r)
	return r
}

// Wake has every reader list the files soon.
func (s *Set) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked()
	signal(s.catalogue.wake)
}

func (s *Set) wakeLocked() {
	for _, r := range s.readers {
		signal(r.wake)
	}
}

// signal sends to a channel with room for one, which stands for any number.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// quietAt is the monotonic time at which a file will have been quiet for settle.
func (s *Set) quietAt(mtime stamp, since time.Duration) (at, now time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := time.Now()
	now = t.Sub(s.start)
	s.clock.look(now, t.UnixNano())
	return s.clock.quietAt(now, t.UnixNano(), int64(mtime), since), now
}
