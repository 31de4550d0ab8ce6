// Package follow reads many files as the batches of several routes, for the sources whose data are files in directories:
// spool_dir, whose files are complete one day, and tail, whose files grow and are rotated.
//
// A [Catalogue] knows the files of a source, once for all of its routes. It lists them, gives each an identity that does not
// depend on its name (package fileid), notices files that grow, shrink, are rewritten, renamed, copied away or deleted, and
// holds those open that are about to disappear. A [Reader] belongs to one route. It has a cursor in each file, an identity and
// a position, cuts what is there into aligned batches (package lines), and seals files to which nothing will be added.
//
// The two kinds of files are two strategies. The owner is a source, which says where files lie ([Place]) and what becomes
// of finished ones. The package opens only what its Place names, changes nothing in any directory, and hides nothing: what
// cannot be read to its end is reported.
package follow

import (
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
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

// Place is where a source's files lie.
type Place interface {
	// List calls found with each regular file that is to be read, and refused with each thing that is left alone, and why. An
	// error: nothing is known, what was known stays.
	List(found func(Sight), refused func(label, why string)) error
	// Finished calls found with the files that the source has finished and that still have a name.
	Finished(found func(Sight)) error
	// Beside calls found with every regular file in the directory of a label, wanted or not. A directory that is
	// gone has none.
	Beside(label string, found func(Sight)) error
}

// Options of a Catalogue. Zero values are not replaced by defaults: the source's options have theirs.
type Options struct {
	Rules     lines.Rules
	ByName    bool          // read in the order of labels; else the least recently changed first
	Settle    time.Duration // a file counts as quiet when it has not changed for so long
	PollMin   time.Duration // the first wait of an idle reader before it lists again; it doubles
	PollMax   time.Duration // the longest
	Watch     time.Duration // how long a finished file is looked at again, ever more rarely
	OpenFiles int           // files held open at once, at most
	Keep      bool          // finished files stay where they are: a sealed one that was not changed need not be read again
	Forget    time.Duration // how long a file has to be gone before its progress is dropped
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

// strategy is what differs between files that are complete one day and files that may grow for ever.
type strategy interface {
	// grows reports whether files may grow for ever.
	grows() bool
	// skipsEmpty reports whether a compressed file that holds nothing is left out, rather than finished like any empty file.
	skipsEmpty() bool
	// prefersNamed reports whether files that have names are closed before those that only a handle leads to.
	prefersNamed() bool
	// sawEnough reports whether the last stat of a file is good enough for the next read.
	sawEnough(f *file) bool
	// ready reports whether a route has something to do in a file now; if not, it asks for a listing when it may have.
	ready(r *Reader, f *file, now time.Duration) bool
	// isAtEnd reports whether nothing more is to be read of a file as it was seen last. cur is nil if it is not identified.
	isAtEnd(f *file, cur *cursor) bool
	// endOf returns what is known of a file's end; ok is false where another file is read on in its place, or it was closed.
	endOf(f *file) (end ending, ok bool)
	// wholeAt returns when a compressed file counts as whole if it does not change, and the time.
	wholeAt(f *file) (at, now time.Duration)
	// meet finds out where the routes begin in a file that no route knows. done reports that it is not to be taken as a new
	// one, read that there is something to be read of it now.
	meet(f *file, head []byte) (done, read bool)
	// mismatch takes an identity of earlier runs whose data does not stand in f any more.
	mismatch(f *file, e *Entry, why string)
	// resumed takes a cursor that begins where m says.
	resumed(cur *cursor, m stream.Mark)
	// nameGone takes a file that the listing does not have any more.
	nameGone(f *file)
	// rewritten takes what was read of a file whose place holds other data now.
	rewritten(old *file, why string)
	// grew notes that more came after a file was sealed: it goes on as the same partition.
	grew(cur *cursor)
	// sealed takes a cursor that has handed out all of its file.
	sealed(cur *cursor)
	// listed follows up a listing.
	listed(now time.Duration)
}
