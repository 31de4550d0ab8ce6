// Package follow reads many files as the batches of several routes, for sources that read files in
// directories. In spool_dir, each file becomes complete at some time. In tail, files grow and are
// rotated.
//
// A [Catalogue] tracks the files of a source, once for all of its routes. It lists them and gives
// each an identity independent of its name (package fileid). It notices files that grow, shrink,
// are rewritten, renamed, copied away or deleted. An open file that is deleted stays open, so that
// the rest of it can be read. A [Reader] belongs to one route. It has a cursor (an identity and a
// position) in each file, cuts the data into batches (package lines), and seals files that are
// complete.
//
// Terms of this package:
//
//   - The label of a file is its name as users see it, such as a/b.log. A listed name is one that
//     the source reads. An unlisted name is any other, such as app.log.1 if the source reads *.log.
//   - The id of a file (its identity) has its inode, birth time and a hash of its head (at most its
//     first 1024 bytes). A file is identified when it gets an id, or when its earlier id is found.
//   - A mark is the stored progress of one route in one file. It has the watermark, the position up
//     to which all data is settled (delivered, dead-lettered or dropped), and the settled ranges
//     above it.
//   - A sealed file was handed out to its end. Its seal is the span that ends there, with Last set.
//   - A finished file is one that its source has renamed, moved or deleted after every route has
//     settled all of it.
//   - An awaiting file has lost its name or its content. It waits for a successor: another file
//     that holds the same data, such as a copy that a rotation has made.
//   - A file is quiet if it has not changed for the time Options.Settle.
//   - A fingerprint identifies the data that was read of a file. It has a position, and hashes of
//     the file's first bytes and of the last bytes before the position.
//   - With Once (see stream.OpenOptions), a reader ends when it has read the existing data.
//
// A Catalogue belongs to a source, which lists the files ([Place]) and finishes them. The package
// opens only files that the source lists (also through Growing.Siblings), and changes nothing in
// any directory. It reports each file that it cannot read to its end.
package follow

import (
	"time"

	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Listed is one regular file as a listing saw it.
type Listed struct {
	Dir   Dir    // through which it is opened
	Name  string // beneath Dir
	Label string // shown to users; the partition's name, unique until a file is renamed
	Info  vfs.Info
}

// Dir opens and stats files by their names in it, as a vfs.Dir does.
type Dir interface {
	Open(name string) (vfs.File, error)
	Stat(name string) (vfs.Info, error)
}

// Place lists the files of a source.
type Place interface {
	// List calls found with each regular file to read, and refused with each skipped entry and the
	// reason. If List returns an error, the Catalogue keeps the files of the previous listing.
	List(found func(Listed), refused func(label, why string)) error
	// Finished calls found with the files that the source has finished and that still have a name.
	Finished(found func(Listed)) error
	// FolderMissing reports whether the folder of the file with this label is missing but may come
	// back. It may be mounted late, or renamed for a while. The progress of its files is then kept
	// without a time limit. dev is the device of the file. See IsFolderMissing.
	FolderMissing(label string, dev uint64) bool
}

// Options of a Catalogue. Zero values are not replaced by defaults: each source has defaults in
// its own options.
type Options struct {
	Rules     lines.Rules
	ByName    bool          // read in the order of labels; else the least recently changed first
	Settle    time.Duration // a file that has not changed for this long counts as quiet
	PollMin   time.Duration // the first wait of an idle reader before it lists again; it doubles
	PollMax   time.Duration // the longest such wait, unless listings take long
	Watch     time.Duration // how long a finished file is checked again, at growing intervals
	OpenFiles int           // maximum number of files held open
	// Keep is set if the source leaves complete files where they are (finished: keep). A sealed
	// file that has not changed need not be read again.
	Keep     bool
	Forget   time.Duration // how long a file has to be gone before its progress is dropped; 0: never
	Identity Identity      // how a file of an earlier run is recognised

	// ByHead returns the framing of a file that begins with head. The function is nil if all files
	// use the framing of Rules, or if Rules has no framing.
	ByHead func(head []byte) lines.Framing
	Packed Packed // how compressed files are read

	// Growing is set if files may grow without end. A file is then sealed when it has had no listed
	// name and no change for Growing.GoneWait. If Growing is nil, a file is sealed when it is
	// quiet.
	Growing *Growing
}

// Growing are the options for files that grow.
type Growing struct {
	// Siblings calls found with every regular file in the directory of the file with this label,
	// whether the source reads it or not. A missing directory counts as empty.
	Siblings func(label string, found func(Listed)) error
	// FromEnd means that a route without any progress begins at the ends of the files that
	// exist when it starts.
	FromEnd bool
	// PartialWait is the time without a change after which an unterminated last line becomes a
	// record before the file is sealed. Zero means never. For a compressed file, zero means
	// GoneWait.
	PartialWait time.Duration
	GoneWait    time.Duration // a file without a listed name ends after this long without change
	// CopyWait is the time for which a file with the same content as another one is held back (not
	// read). It may be a copy that a rotation makes. A file that has lost its name or its content
	// waits at least as long for such a copy.
	CopyWait      time.Duration
	DeletedMax    int64  // bytes that deleted files may hold
	DeletedBeyond Beyond // the action when they hold more
}

// Beyond is the action on deleted files that hold more than their budget.
type Beyond uint8

// The choices when deleted files hold more than their budget.
const (
	KeepDeleted Beyond = iota // they are still read to their ends
	DropDeleted               // the largest are given up before they are read to their ends
	StopDeleted               // the routes stop
)

// strategy holds the behavior that differs between files that become complete and files that may
// grow without end.
type strategy interface {
	// ready reports whether a route has something to do in a file now. If the route may have
	// something to do at a known later time, ready schedules a listing for that time.
	ready(r *Reader, f *file, now time.Duration) bool
	// endOf returns the state of a file's end. ok is false if another file has replaced f, or f was
	// closed.
	endOf(f *file) (end ending, ok bool)
	// mismatch handles an identity of earlier runs with data that is no longer in f.
	mismatch(f *file, e *Entry, why string)
	// resumed adjusts a new cursor, which begins at the position of m.
	resumed(cur *cursor, m stream.Mark)
	// nameGone handles a file that is no longer listed.
	nameGone(f *file)
	// rewritten handles old, the record of a file that was replaced by other data in the same inode
	// or under the same name.
	rewritten(old *file, why string)
	// grew resumes the partition of a sealed file that has grown.
	grew(cur *cursor)
	// sealed handles a cursor that has handed out all of its file.
	sealed(cur *cursor)
	// listed completes a successful listing.
	listed(now time.Duration)
}
