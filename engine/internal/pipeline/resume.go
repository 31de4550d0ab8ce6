package pipeline

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// load asks a sink with a ledger for the route's progress. The ledger is the record of the progress
// that the sink keeps in its own database. load does nothing if the sink has no ledger, or if a
// broker assigns the partitions.
//
// The progress in the ledger is used even if it is behind the checkpoint, because the database may
// have been restored from a backup. But if the ledger is empty and the checkpoint has progress,
// checkLedger returns an error. The ledger has no names or metadata of partitions. load takes these
// from the checkpoint. The checkpoint alone has the progress of discarded dead letters.
//
// If o.Keep is set (see stream.SinkOptions), several processes use the same ledger. Then load
// accepts an empty ledger. It ignores the partitions of other processes, except requests and dead
// letters. If o.OwnLetters is set, the ledger has only the progress of replayed dead letters.
func (r *saver) load(ctx context.Context, o stream.SinkOptions) error {
	if r.ledgered == nil || r.assigned != nil {
		return nil
	}
	marks, err := r.ledgered.Load(ctx)
	if err != nil {
		return fmt.Errorf("sink %s: load the progress in its ledger: %w", r.cfg.Sink.Component.Name, err)
	}
	held := make(map[string]stream.Mark, len(marks))
	for _, m := range marks {
		held[m.Part.ID] = m
	}
	behind := 0
	for local := range r.layers.marks() {
		if o.OwnLetters && !deadletter.IsPartition(local.Part.ID) {
			continue
		}
		if local.Metadata == deadletter.Discarded && deadletter.IsPartition(local.Part.ID) {
			held[local.Part.ID] = local
			continue
		}
		m := held[local.Part.ID]
		// The checkpoint counts ranges that wait for a retry as settled, and the ledger does not.
		// So a ledger without such ranges is not behind.
		short := m.Watermark.Compare(local.Watermark) < 0 && !local.Waiting
		if short && !stream.IsRequest(local.Part.ID) { // a ledger returns only the latest requests
			behind++
		}
		m.Part, m.Metadata = local.Part, local.Metadata
		m.Finished = local.Finished && !short && len(m.Above) == 0
		held[local.Part.ID] = m
	}
	if o.Keep > 0 {
		local := make(map[string]bool)
		for m := range r.layers.marks() {
			local[m.Part.ID] = true
		}
		maps.DeleteFunc(held, func(id string, _ stream.Mark) bool { // of another process
			return !local[id] && !stream.IsRequest(id) && !deadletter.IsPartition(id)
		})
	}
	r.resumed = &resumed{marks: held, maybeLost: len(marks) == 0 && o.Keep == 0 && !o.OwnLetters}
	if behind > 0 && !r.resumed.maybeLost { // checkLedger reports a lost ledger
		r.host.log.Warn("the sink's ledger is behind the local state; the missing data is "+
			"delivered again", "partitions", behind)
	}
	return nil
}

// checkLedger returns an error if the sink's ledger is empty and the checkpoint has progress.
// Ranges that wait for a retry do not count: in the checkpoint they are settled, although they were
// not delivered. checkLedger must be called after the store of waiting batches was opened. A replay
// of dead letters does not open that store. In a replay, checkLedger therefore accepts an empty
// ledger if, according to the checkpoint, ranges of each partition wait.
func (r *saver) checkLedger() error {
	if r.resumed == nil || !r.resumed.maybeLost {
		return nil
	}
	var lost amount
	for m := range r.layers.marks() {
		if !r.waits.covers(m) && !(m.Waiting && r.slot.pipe.isReplay()) {
			lost.add(m)
		}
	}
	if lost.partitions == 0 {
		return nil
	}
	return supervise.Final(fmt.Errorf("sink %s: its ledger (%s) is missing or empty, but the local state "+
		"shows progress in %d partitions; up to %d bytes "+
		"of files, or keys of tables, would be delivered again: restore the ledger, or accept that with %s",
		r.cfg.Sink.Component.Name, r.ledgered.LedgerName(), lost.partitions, lost.positions,
		r.slot.pipe.resetCommand(r.key)))
}

// amount is the amount of data that was delivered, dead-lettered or dropped according to the
// checkpoint.
type amount struct {
	partitions int
	positions  int64 // bytes of files, key values of tables
}

// add adds the settled positions in m, the progress of one partition. It ignores the partitions of
// replayed dead letters.
func (a *amount) add(m stream.Mark) {
	if deadletter.IsPartition(m.Part.ID) || m.Watermark == (stream.Position{}) && len(m.Above) == 0 {
		return
	}
	a.partitions++
	a.positions += m.Watermark.Num
	for _, above := range m.Above {
		a.positions += above.To.Num - above.From.Num
	}
}

// resumed has the progress of a route whose sink has a ledger. Its methods mark, all, update and
// forget are safe for concurrent use.
type resumed struct {
	mu    sync.RWMutex           // guards marks and saved
	marks map[string]stream.Mark // as loaded from the ledger at the start
	saved map[string]stream.Mark // saved by this run
	// the ledger has no progress, so it was lost if the checkpoint has some; see saver.checkLedger
	maybeLost bool

	// late and kept are used only during saves, one save at a time. Both are ordered from oldest to
	// newest.
	late []prunedPartition // deleted partitions that this run has read data of
	kept []string          // deleted partitions that the sink's ledger still has
}

func (s *resumed) mark(id string) (stream.Mark, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	m, ok := s.saved[id]
	if !ok {
		m, ok = s.marks[id]
	}
	m.Above = slices.Clone(m.Above)
	return m, ok
}

// update notes progress that this run has saved.
func (s *resumed) update(marks []stream.Mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil {
		s.saved = make(map[string]stream.Mark)
	}
	for _, m := range marks {
		s.saved[m.Part.ID] = m
	}
}

func (s *resumed) all() []stream.Mark {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.marks))
}

// forget deletes the progress of the partitions in ids. Some of them are also in idle: this run has
// not read them. forget returns the partitions in idle that had progress at the start. The sink can
// delete its rows of these at once.
func (s *resumed) forget(ids []string, idle map[string]bool) (had []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if _, ok := s.marks[id]; ok && idle[id] {
			had = append(had, id)
		}
		delete(s.marks, id)
		delete(s.saved, id)
	}
	return had
}

// markOf returns the route's saved progress in a partition, and false if there is none.
func (r *saver) markOf(id string) (stream.Mark, bool) {
	if r.assigned != nil {
		return stream.Mark{}, false
	}
	progress := r.layers.mark
	if r.resumed != nil {
		progress = r.resumed.mark
	}
	m, known := progress(id)
	m.Part.ID = id
	return r.waits.resume(m, known)
}

// stateDir opens a directory in which the reader can store state that does not fit into its
// progress in the checkpoint.
func (r *route) stateDir() (vfs.Dir, error) {
	return r.pipe.state.makeDir(SourceDir(r.pipe.name) + "." + fileName(r.cfg.Name))
}

func (r *saver) known() iter.Seq[stream.Mark] {
	if r.assigned != nil {
		return func(func(stream.Mark) bool) {}
	}
	if r.resumed != nil {
		return ofSource(slices.Values(r.resumed.all()))
	}
	return ofSource(r.layers.marks())
}

// ofSource omits the marks of dead letters.
func ofSource(marks iter.Seq[stream.Mark]) iter.Seq[stream.Mark] {
	return func(yield func(stream.Mark) bool) {
		for m := range marks {
			if !deadletter.IsPartition(m.Part.ID) && !yield(m) {
				return
			}
		}
	}
}
