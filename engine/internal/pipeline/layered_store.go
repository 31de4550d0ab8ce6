package pipeline

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/stream"
)

// layeredStore stores the progress of one route in the checkpoint. Usually it has one layer.
//
// It has two layers if the sink appends to an output (stream.AppendSink) and the boot id is known.
// Such a sink may acknowledge data before the data is durable (`fsync: interval`). With one layer,
// data could be lost in a power loss: the operating system might have written the checkpoint to
// disk, but not yet the sink's data.
//
//	layer  saved                      valid                        survives
//	upper  often                      until the system restarts    kill -9
//	lower  after the sink has synced  always                       power loss
//
// If the upper layer has progress of a partition, it is at least the progress in the lower layer.
// In the checkpoint log, each layer has a route name of its own. The name of the upper layer ends
// in the boot id. See docs/adr/0004-two-layers-of-checkpoint.md.
type layeredStore struct {
	store positionStore
	lower string
	upper string        // "" if there is one layer
	pause time.Duration // pause after a small write

	pendingMarks  map[string]stream.Mark // saved in the upper layer but not in the lower
	pendingTokens map[string]string
}

// newLayeredStore returns the layered store of a route. It has two layers if lazy is set and boot
// is not "". lazy means that the sink may acknowledge data before the data is durable. An empty
// boot means that the boot id is unknown.
//
// If an earlier process was killed before its sink had synced, its last progress is in the upper
// layer only. The new store copies that progress to the lower layer after the first sync. Otherwise
// the progress of partitions without new data would never get there.
func newLayeredStore(store positionStore, key string, lazy bool, boot string) *layeredStore {
	if !lazy {
		boot = ""
	}
	m := storedProgress(store, key, boot)
	if m.layered() {
		m.pendingMarks = make(map[string]stream.Mark)
		m.pendingTokens = make(map[string]string)
		m.queueMissing()
	}
	return m
}

// storedProgress returns the layered store of a route, for reading only. It always has both layers
// if boot is not "". For a route that saves to the lower layer only, the upper one is empty.
func storedProgress(store positionStore, key, boot string) *layeredStore {
	m := &layeredStore{store: store, lower: key, pause: writePause}
	if boot != "" {
		m.upper = key + checkpoint.BootMark + boot
	}
	return m
}

// queueMissing finds the progress that is in the upper layer but not in the lower one, because it
// was not synced. The next call of synced copies it to the lower layer.
func (m *layeredStore) queueMissing() {
	for mark := range m.store.Marks(m.upper) {
		if below, ok := m.store.Mark(m.lower, mark.Part.ID); !ok || !sameMark(below, mark) {
			m.pendingMarks[mark.Part.ID] = mark
		}
	}
	below := m.store.Places(m.lower)
	for lane, token := range m.store.Places(m.upper) {
		if below[lane] != token {
			m.pendingTokens[lane] = token
		}
	}
}

func sameMark(a, b stream.Mark) bool {
	return a.Part == b.Part && a.Watermark == b.Watermark && a.Finished == b.Finished &&
		a.Waiting == b.Waiting &&
		a.Metadata == b.Metadata && slices.Equal(a.Above, b.Above)
}

// failed reports whether the checkpoint log has failed and must be opened again.
func (m *layeredStore) failed() bool { return m.store.Failed() != nil }

func (m *layeredStore) layered() bool { return m.upper != "" }

// forgetOtherBoots deletes all upper layers that m does not use. Usually they are of earlier boots,
// and no longer valid. If m has one layer, the upper layer of this boot is deleted too, and after a
// kill its progress is lost: the records since the last sync are delivered again. This progress must
// not be copied to the lower layer, because the sink that wrote its data can no longer sync it.
func (m *layeredStore) forgetOtherBoots() error {
	for _, route := range m.store.Routes() {
		if route == m.upper || !strings.HasPrefix(route, m.lower+checkpoint.BootMark) {
			continue
		}
		var ids []string
		for mark := range m.store.Marks(route) {
			ids = append(ids, mark.Part.ID)
		}
		if err := m.store.Forget(route, ids); err != nil {
			return err
		}
		tokens := m.store.Places(route)
		for lane := range tokens {
			tokens[lane] = "" // deletes the token
		}
		if err := m.store.Append(route, nil, tokens); err != nil {
			return err
		}
	}
	return nil
}

// save writes the progress of partitions (marks) and the resume tokens of workers as one
// entry. The entry survives kill -9, but not a power loss.
func (m *layeredStore) save(marks []stream.Mark, tokens map[string]string) error {
	if !m.layered() {
		return m.store.Append(m.lower, marks, tokens)
	}
	for _, mark := range marks {
		m.pendingMarks[mark.Part.ID] = mark
	}
	maps.Copy(m.pendingTokens, tokens)
	return m.store.Append(m.upper, marks, tokens)
}

// synced makes all saved progress survive a power loss. The caller must have synced the sink
// before, because the progress includes data that the sink had perhaps not synced when the progress
// was saved.
func (m *layeredStore) synced() error {
	if len(m.pendingMarks)+len(m.pendingTokens) > 0 {
		marks := make([]stream.Mark, 0, len(m.pendingMarks))
		for _, mark := range m.pendingMarks {
			marks = append(marks, mark)
		}
		if err := m.store.Append(m.lower, marks, m.pendingTokens); err != nil {
			return err
		}
		clear(m.pendingMarks)
		clear(m.pendingTokens)
	}
	return m.store.Sync()
}

func (m *layeredStore) mark(id string) (stream.Mark, bool) {
	if m.layered() {
		if mark, ok := m.store.Mark(m.upper, id); ok {
			return mark, true
		}
	}
	return m.store.Mark(m.lower, id)
}

func (m *layeredStore) marks() iter.Seq[stream.Mark] {
	return func(yield func(stream.Mark) bool) {
		upper := make(map[string]bool)
		if m.layered() {
			for mark := range m.store.Marks(m.upper) {
				upper[mark.Part.ID] = true
				if !yield(mark) {
					return
				}
			}
		}
		for mark := range m.store.Marks(m.lower) {
			if !upper[mark.Part.ID] && !yield(mark) {
				return
			}
		}
	}
}

// tokensToDelete returns the lanes (workers) that have a resume token in either layer, except the
// lane with the given name. The result maps each lane to the empty token. Storing an empty token
// removes the lane's token.
func (m *layeredStore) tokensToDelete(name string) map[string]string {
	strays := make(map[string]string)
	for _, layer := range []string{m.lower, m.upper} {
		for lane := range m.store.Places(layer) {
			if lane != name {
				strays[lane] = ""
			}
		}
	}
	return strays
}

// resumeTokens returns the resume tokens of the upper layer (the newer one, which is valid until
// the system restarts). If it has none, resumeTokens returns those of the lower layer.
func (m *layeredStore) resumeTokens() map[string]string {
	if m.layered() {
		if tokens := m.store.Places(m.upper); len(tokens) > 0 {
			return tokens
		}
	}
	return m.store.Places(m.lower)
}
