// Package follow reads many files as the batches of several routes, for sources whose data are
// files in directories. In spool_dir each file is complete at some time; in tail, files grow and
// are rotated.
//
// A [Catalogue] tracks the files of a source, once for all of its routes. It lists them and gives
// each an identity independent of its name (package fileid). It notices files that grow, shrink,
// are rewritten, renamed, copied away or deleted, and keeps disappearing files open. A [Reader]
// belongs to one route. It has a cursor in each file (an identity and a position), cuts the data
// into aligned batches (package lines), and seals files that are complete.
//
// The two kinds of files are two strategies. The owner is a source, which supplies the locations of
// files ([Place]) and handles finished ones. The package opens only names from its Place, changes
// nothing in any directory, and hides nothing: a file that cannot be read to its end is reported.
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
	// List calls found with each regular file to read, and refused with each skipped entry and the
	// reason. After an error the result of the previous listing stays.
	List(found func(Sight), refused func(label, why string)) error
	// Finished calls found with the files that the source has finished and that still have a name.
	Finished(found func(Sight)) error
	// Beside calls found with every regular file in the directory of a label, wanted or not. A
	// directory that is gone has none.
	Beside(label string, found func(Sight)) error
}

// Options of a Catalogue. Zero values are not replaced by defaults: the source's options have
// theirs.
type Options struct {
	Rules     lines.Rules
	ByName    bool          // read in the order of labels; else the least recently changed first
	Settle    time.Duration // a file counts as quiet when it has not changed for so long
	PollMin   time.Duration // the first wait of an idle reader before it lists again; it doubles
	PollMax   time.Duration // the longest
	Watch     time.Duration // how long a finished file is looked at again, ever more rarely
	OpenFiles int           // files held open at once, at most
	// finished files keep their location: an unchanged sealed one need not be read again
	Keep     bool
	Forget   time.Duration // how long a file has to be gone before its progress is dropped
	Identity Identity      // how a file of an earlier run is recognised

	// returns the framing of a file that begins with head; nil if all use the one of Rules
	ByHead func(head []byte) lines.Framing
	Packed Packed // how compressed files are read

	// files may grow without end: they are sealed when deleted, not when quiet; nil: when quiet
	Growing *Growing
}

// Growing are the options for files that grow.
type Growing struct {
	// files that exist at the very first start are read from their ends on
	FromEnd bool
	// time without change after which an unterminated last line is a record; 0 means never
	PartialWait time.Duration
	GoneWait    time.Duration // a file without name is at its end after so long without change
	// time for which a file equal to another is held back as a possible copy of a rotation
	CopyWait      time.Duration
	DeletedMax    int64  // bytes that deleted files may hold
	DeletedBeyond Beyond // the action when they hold more
}

// Beyond is the action on deleted files that hold more than their budget.
type Beyond uint8

// The choices when deleted files hold more than their budget.
const (
	KeepDeleted Beyond = iota // they are read to their ends all the same
	DropDeleted               // the largest are given up, unread
	StopDeleted               // the route stops
)

// strategy is the difference between files that are complete at some time and files that may grow
// without end.
type strategy interface {
	// grows reports whether files may grow for ever. Then a compressed file that holds nothing is
	// left out, rather than finished like any empty file, and files that have names are closed
	// before those that only a handle leads to.
	grows() bool
	// sawEnough reports whether the last stat of a file is good enough for the next read.
	sawEnough(f *file) bool
	// ready reports whether a route has something to do in a file now; if not, it asks for a
	// listing when it may have.
	ready(r *Reader, f *file, now time.Duration) bool
	// isAtEnd reports whether nothing more is to be read of a file as it was seen last. cur is nil
	// if it is not identified.
	isAtEnd(f *file, cur *cursor) bool
	// endOf returns the state of a file's end. ok is false if another file is read in its place, or
	// it was closed.
	endOf(f *file) (end ending, ok bool)
	// wholeAt returns when a compressed file counts as whole if it does not change, and the time.
	wholeAt(f *file) (at, now time.Duration)
	// meet finds out where the routes begin in a file that no route knows. done reports that it is
	// not to be taken as a new one, read that there is something to be read of it now.
	meet(f *file, head []byte) (done, read bool)
	// mismatch takes an identity of earlier runs with data that is no longer in f.
	mismatch(f *file, e *Entry, why string)
	// resumed takes a cursor that begins where m says.
	resumed(cur *cursor, m stream.Mark)
	// nameGone takes a file that the listing does not have any more.
	nameGone(f *file)
	// rewritten takes the read data of a file if its inode or name holds other data now.
	rewritten(old *file, why string)
	// grew notes that more came after a file was sealed: it goes on as the same partition.
	grew(cur *cursor)
	// sealed takes a cursor that has handed out all of its file.
	sealed(cur *cursor)
	// listed follows up a listing.
	listed(now time.Duration)
}
