package pipeline

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"path/filepath"

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
	r.resumed = make(map[string]penstock.Mark, len(marks))
	for _, m := range marks {
		r.resumed[m.Part.ID] = m
	}
	behind := 0
	for local := range r.memory.marks() {
		m := r.resumed[local.Part.ID]
		short := m.Watermark.Compare(local.Watermark) < 0
		if short {
			behind++
		}
		m.Part, m.Note = local.Part, local.Note
		m.Finished = local.Finished && !short && len(m.Above) == 0
		r.resumed[local.Part.ID] = m
	}
	if behind > 0 {
		r.host.log.Warn("the sink holds less than the local state says; what it lacks is delivered again", "partitions", behind)
	}
	return nil
}

// markOf returns what this route had settled of a partition before this run.
func (r *route) markOf(id string) (penstock.Mark, bool) {
	if r.resumed != nil {
		m, ok := r.resumed[id]
		return m, ok
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
		marks = maps.Values(r.resumed)
	}
	return func(yield func(penstock.Mark) bool) {
		for m := range marks {
			if !deadletter.IsPartition(m.Part.ID) && !yield(m) { // those of replayed dead letters are none of the source's
				return
			}
		}
	}
}
