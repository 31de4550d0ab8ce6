// Package tail follows files that grow and are rotated: the source tail.
//
// It finds files by globs, also those that appear late; reads what is added; and follows each file through its rotation:
// renamed within the globs or out of them, copied away and truncated, deleted while it is open, and all of that also
// while nothing ran. What lies between, reading many files as batches and knowing each again, is engine/kit/follow. Its owner
// is the engine, which opens one reader a route. It never writes to a folder or file, never splits a record that has no
// end yet (but for partial_wait), and hides nothing: what was lost, and where, is said.
package tail

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/framing"
	"github.com/penstock-io/penstock/engine/kit/origin"
)

var beyond = map[string]*follow.Beyond{"keep": new(follow.KeepDeleted), "drop": new(follow.DropDeleted), "stop": new(follow.StopDeleted)}

// source is what the readers of all routes share.
type source struct {
	h     penstock.Host
	log   *slog.Logger
	place *place
	set   *follow.Set

	mu    sync.Mutex // guards what follows
	users int        // open readers
	stop  chan struct{}
}

func newSource(o Options, h penstock.Host) (*source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.PartialWait == 0 && o.Framing.By == framing.ByMultiline {
		o.PartialWait = o.Framing.Wait // what follows a record's last line may never come
	}
	s := &source{h: h, log: h.Log(), place: newPlace(o, h.FS())}
	to := follow.Options{
		PollMin: o.PollMin, PollMax: o.PollMax, OpenFiles: o.OpenFiles, Forget: o.Forget,
		Growing: &follow.Growing{
			FromEnd: o.Start == "end", PartialWait: o.PartialWait, GoneWait: o.GoneWait, CopyWait: o.CopyWait,
			DeletedMax: int64(o.DeletedMax), DeletedBeyond: *beyond[o.DeletedBeyond],
		},
	}
	if err := o.Into(&to); err != nil {
		return nil, err
	}
	s.set = follow.New(s.place, to, h, s.log)
	return s, nil
}

// reader is one route's; the last one closes the folders.
type reader struct {
	*follow.Reader
	s      *source
	meta   *origin.Adder
	closed bool
}

// Read implements penstock.Reader.
func (r *reader) Read(ctx context.Context, b *penstock.Batch) error {
	err := r.Reader.Read(ctx, b)
	if err == nil || err == io.EOF {
		r.meta.Add(b)
	}
	return err
}

// Open implements penstock.Source.
func (s *source) Open(ctx context.Context, o penstock.OpenOptions) (penstock.Reader, error) {
	meta, err := origin.New(s.place.o.Meta, "")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	if s.stop == nil {
		stop := make(chan struct{})
		s.stop = stop
		s.h.Go("tail/notify", func(ctx context.Context) error {
			if err := s.set.Watch(ctx, stop, s.place.folders, s.ours); err != nil {
				s.log.Debug("no notifications of changes; the files are polled", "error", err)
			}
			return nil
		})
	}
	return &reader{Reader: s.set.Open(o), s: s, meta: meta}, nil
}

// ours says whether a change concerns a file that may be followed.
func (s *source) ours(name string, _ bool) bool { return !hidden(filepath.Base(name)) }

// Close implements penstock.Reader.
func (r *reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	err := r.Reader.Close()
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return err
	}
	close(s.stop)
	s.stop = nil
	return errors.Join(err, s.place.close())
}

var _ io.Closer = (*reader)(nil)
