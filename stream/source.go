package stream

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// Mark is what one route has settled of one partition: the watermark, and the ranges above it.
type Mark struct {
	Part      Partition
	Watermark Position
	Above     []Range // ascending, disjoint, all above Watermark
	Finished  bool    // the source was told to finish it and did, or it was sealed and wholly settled
	Note      string  // what the source asked to find here again: see Noter; "": nothing
}

// Source is data that can be read again. Every route opens a [Reader] of its own at its own place, so
// that a dead route stops nobody.
type Source interface {
	// Open returns a reader that starts where o.Resume says, for each partition it meets. It is called once
	// a route, before anything is read, and again when the route has failed and starts anew. An error ends the route and is
	// shown as it is: name the place and the remedy.
	Open(ctx context.Context, o OpenOptions) (Reader, error)
}

// OpenOptions says where a Reader starts and when it may stop waiting.
type OpenOptions struct {
	Route string // "pipeline/route"
	// Resume returns what this route has settled of a partition, and false when it has never seen it.
	Resume func(partitionID string) (Mark, bool)
	// Known yields every mark of this route. A source that must recognise data under a changed name or
	// a grown head (a file: device, inode, birth time, head length) searches here at Open.
	Known iter.Seq[Mark]
	// Linger is how long a batch that has been begun waits for more; 0 means not at all.
	Linger time.Duration
	// State opens this route's own state directory, and creates it if missing, for state that the marks cannot hold. The
	// source closes it. State that all routes share belongs in [SourceHost].State. nil if there is none, as in a test.
	State func() (vfs.Dir, error)
	// Once makes Read return io.EOF when what is there now has been read.
	Once bool
	// Count adds n to a counter of what this route's reader met: a file that vanished, a row that came late. n may be 0, which shows
	// the counter from the start. The name is the code's, never data. What concerns the source and no route it counts by its Host.
	// It is safe for concurrent use. nil: as by the Host.
	Count func(name string, n int64)
}

// Reader hands out the records of a source in batches. It is called by one goroutine; [Finisher.Finish]
// of its source may be called from another one meanwhile.
type Reader interface {
	// Read appends whole records and their spans to b until b is [Batch.Full] or nothing more is at hand.
	// It blocks while b is empty, then at most Linger. It skips ranges that Resume reports as settled, and
	// cuts where it would cut again after a crash. A span with no bytes may stand alone, to say that a
	// partition is sealed (Last).
	//
	// io.EOF (with or without records in b): nothing will follow. Any other error ends the route after what is
	// in b; what a reader can survive (one unreadable file among many) it logs, retries with backoff and
	// goes on with the rest. A done ctx makes Read return context.Cause(ctx) soon; what is in b then is dropped
	// unread, so that it will be read again.
	Read(ctx context.Context, b *Batch) error
	// Commit tells the source what this route has made durable, so that a broker may advance. It runs on the
	// checkpoint's goroutine.
	Commit(ctx context.Context, marks []Mark) error
	Close() error
}

// Estimator is an optional part of a [Reader] that knows what is there: for progress and time left.
type Estimator interface {
	// Left is how many bytes are there now and were not read yet. It is called between two calls of Read, by the same goroutine,
	// a few times a second.
	Left() int64
}

// InputReader is an optional part of a [Reader] that can tell whether its input changes while nothing reads it. A route that was stopped
// because of its input starts again when the value of Input changes.
type InputReader interface {
	// Input returns a number that changes with the input: files that appear, grow, change or disappear. It is called every few
	// seconds, and not during Read.
	Input() (uint64, error)
}

// MaxNote is how many bytes a [Mark]'s Note may have at most.
const MaxNote = 256

// Noter is an optional part of a [Reader] that wants to prove at the next start that what it finds is what it knew: a
// file by a hash of the bytes before the watermark.
type Noter interface {
	// Note returns what is to be saved with m, whose Part and Watermark are set: printable text of at most MaxNote bytes.
	// It is called on the checkpoint's goroutine before m is written, beside Read, and must not wait. Before a batch with
	// anything of a partition that has no mark yet goes to a sink with a ledger of its own, it is called between two Reads, too.
	Note(m Mark) string
}

// Forgetter is an optional part of a [Reader] whose partitions may end for good, so that the state grows with what is
// there and not with what ever was.
type Forgetter interface {
	// Forget returns the ids of partitions that are gone, by proof: nothing of them will be handed out again, and what comes
	// later under their names has other ids. The engine drops their marks once all that was read of them has settled. Each id is
	// returned once. It is called on the checkpoint's goroutine, beside Read, and must not wait.
	Forget() []string
}

// Finisher is an optional part of a Source.
type Finisher interface {
	// Finish is called when all routes have settled every record of the sealed partition p, its sinks have
	// synced and the checkpoint is synced: now the file may be renamed or deleted. It may be called again for
	// the same p after a crash. An error is logged and Finish is called again later with backoff.
	Finish(ctx context.Context, p Partition) error
}

// Holder is an optional part of a Source that keeps deleted data until all routes have read it.
type Holder interface {
	// Held returns the deleted data that the source keeps now. It is safe for concurrent use, and
	// must not wait.
	Held() Held
}

// Held is deleted data that takes space until it is read.
type Held struct {
	Files  int
	Bytes  int64         // data that several routes have not read counts once
	Oldest string        // the file that has been kept longest; empty if Files is 0
	Age    time.Duration // of the oldest, since it was deleted
	Route  string        // a route that has not read the oldest
}

// Listener is a push source, which cannot be read again.
type Listener interface {
	// Receive runs until ctx is done. put returns when the buffer holds b durably; only then may the client be
	// answered. put takes over b in any case.
	Receive(ctx context.Context, put func(context.Context, *Batch) error) error
}
