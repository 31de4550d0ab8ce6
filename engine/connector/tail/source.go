// Package tail implements the source tail, which reads files while they grow and are rotated, such
// as logs.
//
// It finds files with globs, also files that appear later, and reads the data that is added to
// them. It recognizes a file after a rotation: the file may be renamed, even to a name that the
// globs do not match; copied and truncated; or deleted while it is open. It recognizes renamed and
// copied files even if the rotation happened while the source was not running. Package
// engine/kit/follow finds and recognizes the files, and reads them into batches. The engine opens
// one reader per route.
//
// The source never writes to a folder or file. It waits for the end of a record. If the option
// partial_wait is set, it waits at most for this time. It reports lost data with the file's path.
package tail

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/framing"
	"github.com/penstock-io/penstock/engine/kit/origin"
	"github.com/penstock-io/penstock/stream"
)

var beyond = map[string]follow.Beyond{"keep": follow.KeepDeleted, "drop": follow.DropDeleted,
	"stop": follow.StopDeleted}

// source is the state that the readers of all routes share.
type source struct {
	log   *slog.Logger
	place *place
	set   *follow.Catalogue
}

func newSource(o Options, h stream.Host) (*source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.PartialWait == 0 && o.Framing.By == framing.ByMultiline {
		o.PartialWait = o.Framing.Wait // the next record, which ends this one, may never come
	}
	s := &source{log: h.Log(), place: newPlace(o, h.FS(), h.Fault)}
	to := follow.Options{
		Growing: &follow.Growing{
			Siblings: s.place.siblings, FromEnd: o.Start == "end",
			PartialWait: o.PartialWait, GoneWait: o.GoneWait, CopyWait: o.CopyWait,
			DeletedMax: int64(o.DeletedMax), DeletedBeyond: beyond[o.DeletedBeyond],
		},
	}
	if err := o.Into(&to); err != nil {
		return nil, err
	}
	s.set = follow.New(s.place, to, h, s.log)
	h.Go("tail/catalogue", s.follow)
	h.Go("tail/notify", s.notify)
	return s, nil
}

// Open implements stream.Source. It opens a reader for one route.
func (s *source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	meta, err := origin.New(s.place.o.Meta, "")
	if err != nil {
		return nil, err
	}
	r := s.set.Open(o)
	r.Origin = meta
	return r, nil
}

// Held implements stream.Holder. It returns the number and size of the deleted files that are kept
// open because a route has not read them.
func (s *source) Held() stream.Held { return s.set.Held() }

// follow lists the files repeatedly until ctx is done, even while no route reads. ctx is done only
// when all routes have ended. Then follow closes the folders.
func (s *source) follow(ctx context.Context) error {
	return errors.Join(s.set.Run(ctx), s.place.close())
}

func (s *source) notify(ctx context.Context) error {
	if err := s.set.Watch(ctx, nil, s.place.folders, s.ours); err != nil {
		s.log.Debug("no notifications of changes; the files are polled", "error", err)
	}
	return nil
}

// ours reports whether a change in a watched folder may concern a file to read. It returns false
// for hidden files, which are only polled.
func (s *source) ours(name string, _ bool) bool { return !hidden(filepath.Base(name)) }
