package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync/atomic"

	"github.com/penstock-io/penstock/engine/internal/cluster"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// positionStore stores the progress of routes. If a cluster shares the pipeline, the store is a
// bucket of the cluster. Otherwise it is the checkpoint log in the state directory.
type positionStore interface {
	Append(route string, marks []stream.Mark, tokens map[string]string) error
	Forget(route string, partitionIDs []string) error
	Sync() error
	Failed() error
	Mark(route, partitionID string) (stream.Mark, bool)
	Marks(route string) iter.Seq[stream.Mark]
	Places(route string) map[string]string
	Routes() []string
}

// sharing is the state of a pipeline that a cluster shares, which means that one process at a time
// runs it. The zero value means that every process runs the pipeline.
type sharing struct {
	on     bool            // the pipeline is shared
	bucket *cluster.Bucket // set before the pipeline runs
	tenure atomic.Pointer[cluster.Tenure]
}

// checkSharing decides whether the cluster shares the pipeline, which means that one process at a
// time runs it. A pipeline is not shared if a broker assigns its partitions: all processes then run
// it. checkSharing returns an error if the pipeline must be shared but its source does not allow
// that.
func (p *pipe) checkSharing() error {
	assigned, ok := p.source.(stream.AssignedSource)
	isAssigned := ok && assigned.HasAssignments()
	if err := p.cfg.CheckShared(p.source, isAssigned); err != nil {
		return err
	}
	p.sharing.on = !isAssigned
	return nil
}

// checkShared returns an error if the pipeline is shared but its sink stores data on one machine,
// where the next owner of the pipeline cannot reach it.
func (r *route) checkShared() error {
	if !r.pipe.sharing.on {
		return nil
	}
	name, why := r.cfg.Sink.Component.Name, ""
	if _, ok := r.sink.(stream.AppendSink); ok {
		why = "it appends to an output of one machine"
	} else if _, ok := r.sink.(stream.ParkingSink); ok {
		why = "it parks deliveries on one machine"
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("sink %s cannot be shared with `state.nats`: %s; use another sink, or run "+
		"this pipeline with a `state:` folder in a config of its own", name, why)
}

// isStandby reports whether the pipeline is shared and this process does not own it.
func (p *pipe) isStandby() bool { return p.sharing.on && p.sharing.tenure.Load() == nil }

// runShared runs the pipeline each time this process becomes its owner. It returns when the
// pipeline ends while this process owns it, when all routes are draining and this process does not
// own it, or when ctx ends.
func (p *pipe) runShared(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if p.draining() {
		p.halted()
		return nil
	}
	return p.sharing.bucket.Own(ctx, p.name, func(ctx context.Context, t cluster.Tenure) error {
		p.sharing.tenure.Store(&t)
		defer p.sharing.tenure.Store(nil)
		err := p.run(ctx)
		if errors.Is(context.Cause(ctx), cluster.ErrNotOwner) {
			for _, s := range p.routes() {
				s.lost()
			}
			if p.draining() {
				stop()
			}
		}
		return err
	})
}

// lost is called when this process no longer owns the pipeline. It clears the error of the route,
// because the route ended only for that reason. An error that forbids a restart stays.
func (s *slot) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.final {
		s.err, s.paused = nil, s.starts > 0
		s.failure = s.unrecovered()
	}
}

// confirm waits until the cluster's bucket confirms that this process owns the pipeline. It is
// called after this process has become the owner of the sink's ledger (the record of the progress
// in the sink's database), and before the route delivers. It is needed for the following case. This
// process is suspended, and another process becomes the owner of the pipeline. Then this process
// resumes, and makes itself the owner of the ledger. confirm must then return an error.
func (p *pipe) confirm(ctx context.Context) error {
	t := p.sharing.tenure.Load()
	switch {
	case !p.sharing.on:
		return nil
	case t == nil:
		return cluster.ErrNotOwner
	}
	return t.Confirm(ctx)
}

// canRestart decides whether the supervisor may start a failed route again. If the pipeline is
// shared, and another process has taken over the sink's ledger or ctx has ended, the route must
// start again when this process next owns the pipeline. canRestart then removes supervise.ErrStop,
// which prevents a restart, from err. Otherwise it returns err unchanged.
func (p *pipe) canRestart(ctx context.Context, err error) error {
	if !p.sharing.on || err == nil || !errors.Is(err, stream.ErrTakenOver) && ctx.Err() == nil {
		return err
	}
	return errors.New(err.Error())
}

// positions returns the store of a route's progress. If the pipeline is shared, this is the bucket
// of the cluster, otherwise the checkpoint in the state directory. If the bucket has no progress of
// the route but the state directory has some, positions returns an error, because the bucket was
// probably lost.
func (p *pipe) positions(route string, s *state) (positionStore, error) {
	if !p.sharing.on {
		return s.store()
	}
	t := p.sharing.tenure.Load()
	if t == nil {
		return nil, cluster.ErrNotOwner
	}
	shared, err := p.sharing.bucket.Positions(context.Background(), route, *t)
	if err != nil {
		return nil, err
	}
	for range shared.Marks(route) {
		return shared, nil
	}
	local, err := s.store()
	if err != nil {
		return nil, err
	}
	for m := range local.Marks(route) {
		if !deadletter.IsPartition(m.Part.ID) {
			return nil, supervise.Final(fmt.Errorf("the state directory %s has progress of %s, and the "+
				"bucket %q has none: restore the bucket, or accept that everything is delivered "+
				"again with `penstock checkpoint reset %s %s`",
				s.name, route, p.sharing.bucket.Name, s.name, route))
		}
	}
	return shared, nil
}

// resetCommand returns the command that deletes the progress of a route, so that everything is
// delivered again.
func (p *pipe) resetCommand(route string) string {
	if p.sharing.on {
		return fmt.Sprintf("`nats kv purge %s %s` while all processes are stopped",
			p.sharing.bucket.Name, cluster.PositionsKey(route))
	}
	return fmt.Sprintf("`penstock checkpoint reset %s %s`", p.state.name, route)
}

// bucketFile is the file in the state directory that names the bucket of the cluster.
const bucketFile = "cluster.bucket"

// openBucket connects an engine to its cluster, if there is one.
func openBucket(ctx context.Context, e *Engine, dir vfs.Dir) error {
	if !e.cfg.Cluster.On() {
		return nil
	}
	b, err := e.o.connect(ctx, &e.cfg.Cluster, e.o.Log)
	if err != nil {
		return err
	}
	if err := checkBucketFile(dir, b); err != nil {
		b.Close()
		return err
	}
	if b.Created {
		e.o.Log.Warn("the bucket was created: shared pipelines start from the beginning",
			"bucket", b.Name)
	}
	e.mu.Lock()
	e.bucket = b
	e.mu.Unlock()
	return nil
}

// checkBucketFile returns an error if the bucket was deleted and created again since this state
// directory was last used with it: the progress in the old bucket is then lost. To detect this, it
// keeps the name and the id of the bucket in a file of the state directory. A bucket with another
// name is accepted, and its name and id replace those in the file.
func checkBucketFile(dir vfs.Dir, b *cluster.Bucket) error {
	want := b.Name + " " + b.ID + "\n"
	f, err := dir.OpenFile(bucketFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	defer func() { _ = f.Close() }() // the text was synced before
	// ReadAt does not move f, so the text is written at offset 0 below.
	old, err := io.ReadAll(io.NewSectionReader(f, 0, int64(len(want)+1<<10)))
	switch {
	case err != nil:
		return fmt.Errorf("state directory: %s: %w", bucketFile, err)
	case string(old) == want:
		return nil
	case strings.HasPrefix(string(old), b.Name+" ") && strings.HasSuffix(string(old), "\n"):
		return fmt.Errorf("the bucket %q was deleted and created again since this process used "+
			"it, so its progress is gone: restore it, or accept that everything is delivered "+
			"again by removing the file %s in the state directory of each process",
			b.Name, bucketFile)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("state directory: %s: %w", bucketFile, err)
	}
	if _, err := io.WriteString(f, want); err != nil {
		return fmt.Errorf("state directory: %s: %w", bucketFile, err)
	}
	return f.Sync()
}

// clusterStatus returns the status of the engine's cluster, or nil if there is none.
func clusterStatus(e *Engine) *status.Cluster {
	if !e.cfg.Cluster.On() {
		return nil
	}
	e.mu.Lock()
	b := e.bucket
	e.mu.Unlock()
	c := &e.cfg.Cluster
	out := &status.Cluster{Node: c.Name(), Bucket: c.Bucket, Leases: []status.Lease{}}
	if b != nil {
		out.Leases = b.Leases()
	}
	return out
}
