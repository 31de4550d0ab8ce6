package pipeline

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/vfs"
)

// load asks a sink that keeps a ledger what it holds. That is the truth, also where it is less than the local state says: the
// database may be an older copy, or a new one. Only words that no ledger has are taken from the local state.
func (r *route) load(ctx context.Context) error {
	marks, err := r.ledgered.Load(ctx)
	if err != nil {
		return fmt.Errorf("sink %s: loading what it holds: %w", r.cfg.Sink.Component.Name, err)
	}
	held := make(map[string]penstock.Mark, len(marks))
	for _, m := range marks {
		held[m.Part.ID] = m
	}
	behind := 0
	for local := range r.memory.marks() {
		m := held[local.Part.ID]
		short := m.Watermark.Compare(local.Watermark) < 0
		if short {
			behind++
		}
		m.Part, m.Note = local.Part, local.Note
		m.Finished = local.Finished && !short && len(m.Above) == 0
		held[local.Part.ID] = m
	}
	r.resumed = &resumed{marks: held}
	if behind > 0 {
		r.host.log.Warn("the sink holds less than the local state says; what it lacks is delivered again", "partitions", behind)
	}
	return nil
}

// resumed are the marks with which a route began whose sink keeps a ledger. It is safe for concurrent use.
type resumed struct {
	mu    sync.RWMutex // guards marks, of partitions that were not forgotten since
	marks map[string]penstock.Mark
}

func (s *resumed) mark(id string) (penstock.Mark, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.marks[id]
	return m, ok
}

func (s *resumed) all() []penstock.Mark {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.marks))
}

// forget drops the marks of ids, and returns those of idle, which are among ids, that had one.
func (s *resumed) forget(ids, idle []string) (had []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range idle {
		if _, ok := s.marks[id]; ok {
			had = append(had, id)
		}
	}
	for _, id := range ids {
		delete(s.marks, id)
	}
	return had
}

// markOf returns what this route had settled of a partition before this run.
func (r *route) markOf(id string) (penstock.Mark, bool) {
	if r.resumed != nil {
		return r.resumed.mark(id)
	}
	return r.memory.mark(id)
}

// stateDir opens the folder in which the route's reader remembers what no mark holds.
func (r *route) stateDir() (vfs.Dir, error) {
	return r.host.FS().MakeDir(filepath.Join(r.pipe.state.name, "sources", r.pipe.name+"."+r.cfg.Name), 0o700)
}

func (r *route) known() iter.Seq[penstock.Mark] {
	marks := r.memory.marks()
	if r.resumed != nil {
		marks = slices.Values(r.resumed.all())
	}
	return func(yield func(penstock.Mark) bool) {
		for m := range marks {
			if !deadletter.IsPartition(m.Part.ID) && !yield(m) { // those of replayed dead letters are none of the source's
				return
			}
		}
	}
}
