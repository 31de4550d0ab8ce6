package cli

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/stream"
)

// lettersPath returns the path of a route's dead letters. The first argument is the path of a
// config or state directory. For a state directory, and for a route that the config does not have,
// lettersPath returns the default path.
func lettersPath(p *program, path, route string) (string, error) {
	name, route, _ := strings.Cut(route, "/")
	state := path
	if !isState(path) {
		c, err := engine.Load(path, p.components...)
		if err != nil {
			return "", err
		}
		if of, r, err := c.Route(name, route); err == nil {
			return pipeline.LettersPath(*of, *r), nil
		}
		state = c.State
	}
	return filepath.Join(state, "dead", deadletter.FileName(name, route)), nil
}

// repeated finds the dead letters of records that are delivered again because of a change of
// progress. It compares the ids of partitions, since a later partition may have the same name. It
// compares the names only if a letter has no partition id, or is not in the file of letters any
// more.
type repeated struct {
	change *change
	ids    map[string]bool // ids of partitions with data that is delivered again
	names  map[string]bool // names of these partitions

	// For each letter in the file: true if its record is delivered again. The keys are the ids that
	// the letters have as partitions of the checkpoint.
	letters map[string]bool
}

func newRepeated(c *change) *repeated {
	return &repeated{change: c, ids: make(map[string]bool), names: make(map[string]bool),
		letters: make(map[string]bool)}
}

func (r *repeated) add(p stream.Partition) { r.ids[p.ID], r.names[p.Name] = true, true }

// read reads the file of letters.
func (r *repeated) read() error {
	_, err := deadletter.Each(r.change.files, r.change.letters, func(e *deadletter.Entry) error {
		again, known := r.letters[e.Partition] // of a letter that was replayed and refused again
		if !deadletter.IsPartition(e.Partition) {
			again, known = r.ids[e.Partition] && r.change.isAfter(e.Position), e.Partition != ""
		}
		if known {
			r.letters[deadletter.PartitionOf(e.ID)] = again
		}
		return nil
	})
	return err
}

// isAfter reports whether a record that ends at the given position is after the new watermark. It
// returns true if the change deletes the progress, or if the position is not a number.
func (c *change) isAfter(position string) bool {
	number, _, _ := strings.Cut(position, "~")
	at, err := strconv.ParseInt(number, 10, 64)
	return !c.set || c.to == 0 || err != nil || at > c.to
}

// has reports whether the record of a letter is delivered again.
func (r *repeated) has(letter stream.Partition) bool {
	again, known := r.letters[letter.ID]
	return known && again || !known && r.names[letter.Name]
}

// addLetters selects the replayed dead letters of records that are delivered again, so that they
// count as not replayed. A record that is refused again usually gets no second letter. If its
// first letter still counted as replayed, no list would show the record.
func (c *change) addLetters(s *selection, store *checkpoint.Store, again *repeated) error {
	if err := again.read(); err != nil {
		return err
	}
	for key := range s.marks {
		for m := range store.Marks(key) {
			isNamed := slices.Contains(c.parts, m.Part.ID) // find has selected it
			if deadletter.IsPartition(m.Part.ID) && again.has(m.Part) && !isNamed {
				s.add(key, m.Part, 0)
			}
		}
	}
	return nil
}
