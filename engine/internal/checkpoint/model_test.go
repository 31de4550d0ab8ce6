package checkpoint

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

const seed = 20261121

// model is a simple representation of the expected contents.
type model struct {
	marks  map[string]map[string]stream.Mark
	places map[string]map[string]string
}

func newModel() *model {
	return &model{marks: make(map[string]map[string]stream.Mark),
		places: make(map[string]map[string]string)}
}

func (m *model) append(route string, marks []stream.Mark, places map[string]string) {
	if m.marks[route] == nil {
		m.marks[route], m.places[route] = make(map[string]stream.Mark), make(map[string]string)
	}
	for _, k := range marks {
		m.marks[route][k.Part.ID] = k
	}
	maps.Copy(m.places[route], places)
	maps.DeleteFunc(m.places[route], func(_, place string) bool { return place == "" })
}

func (m *model) forget(route string, ids []string) {
	for _, id := range ids {
		delete(m.marks[route], id)
	}
}

// String lists all contents, sorted.
func (m *model) String() string {
	var lines []string
	for route, marks := range m.marks {
		for _, k := range marks {
			lines = append(lines, fmt.Sprintf("%s %q %q %v %v %v %q",
				route, k.Part.ID, k.Part.Name, k.Watermark, k.Above, k.Finished, k.Metadata))
		}
		for lane, place := range m.places[route] {
			lines = append(lines, fmt.Sprintf("%s lane %q %q", route, lane, place))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// contents returns the contents of a store as a model.
func contents(s *Store) *model {
	m := newModel()
	for _, route := range s.Routes() {
		m.append(route, slices.Collect(s.Marks(route)), s.Places(route))
	}
	return m
}

func (s *Snapshot) model() *model {
	m := newModel()
	for _, r := range s.Routes {
		m.append(r.Route, r.Marks, r.Places)
	}
	return m
}

// step is one call that changes a store.
type step struct {
	route  string
	marks  []stream.Mark
	places map[string]string
	forget []string
}

func (st *step) on(s *Store) error {
	if st.forget != nil {
		return s.Forget(st.route, st.forget)
	}
	return s.Append(st.route, st.marks, st.places)
}

func (st *step) onModel(m *model) {
	if st.forget != nil {
		m.forget(st.route, st.forget)
		return
	}
	m.append(st.route, st.marks, st.places)
}

// steps returns n steps with extreme numbers. They use few partitions, so that each partition
// changes often.
func steps(rng *rand.Rand, n int) []step {
	list := make([]step, n)
	for i := range list {
		st := &list[i]
		st.route = pick(rng, "access/main", "orders/archive", "orders/alerts")
		if rng.IntN(8) == 0 {
			st.forget = []string{partID(rng), partID(rng), "never seen"}
			continue
		}
		for range rng.IntN(4) + 1 {
			st.marks = append(st.marks, randomMark(rng))
		}
		if rng.IntN(3) == 0 {
			st.places = map[string]string{pick(rng, "file", "b"): pick(rng, "", "out.log 8192",
				"out.log 9000")}
		}
	}
	return list
}

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }

func partID(rng *rand.Rand) string { return fmt.Sprintf("fe00-%x-19ab2-%x", rng.IntN(8), 77) }

func randomMark(rng *rand.Rand) stream.Mark {
	m := stream.Mark{Part: stream.Partition{ID: partID(rng),
		Name: pick(rng, "a.log", "b.log", "", "größe.log", "a\nb")}}
	num := func() int64 {
		return []int64{0, 1, -1, rng.Int64N(1 << 40), -rng.Int64N(1 << 40), math.MaxInt64,
			math.MinInt64}[rng.IntN(7)]
	}
	key := func() string { return "" }
	if rng.IntN(3) == 0 {
		key = func() string { return pick(rng, "", "k", "key-17", "key-18", "\x00\xff") }
	}
	at := func() stream.Position { return stream.Position{Num: num(), Key: key()} }
	m.Watermark, m.Finished = at(), rng.IntN(4) == 0
	m.Metadata = pick(rng, "", "", "AQIDBA", strings.Repeat("n", stream.MaxMetadata))
	for range rng.IntN(4) * rng.IntN(4) {
		m.Above = append(m.Above, stream.Range{From: at(), To: at()})
	}
	return m
}

func mustOpen(t testing.TB, dir vfs.Dir, o Options) (*Store, *Report) {
	t.Helper()
	s, r, err := Open(dir, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s, r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func stateDir(t testing.TB, m vfs.FS) vfs.Dir {
	t.Helper()
	d, err := m.MakeDir("/state", 0o700)
	must(t, err)
	return d
}

// memory returns a file system with a state directory that contains the given log.
func memory(t testing.TB, log []byte) (*vfstest.Mem, vfs.Dir) {
	t.Helper()
	m := vfstest.New()
	must(t, m.WriteFile("/state/"+Name, log))
	return m, stateDir(t, m)
}

// written is a log after some steps, with its contents and its size after each step. Index 0 stands
// for the empty log.
type written struct {
	log   []byte
	held  []string
	sizes []int64
}

func writeSteps(t testing.TB, list []step) written {
	t.Helper()
	return writeAs(t, list, version)
}

// writeAs writes a log in the given format.
func writeAs(t testing.TB, list []step, format uint16) written {
	t.Helper()
	m := vfstest.New()
	s, _ := mustOpen(t, stateDir(t, m), Options{Slack: 1 << 30, version: format})
	model := newModel()
	_, size := s.Size()
	w := written{held: []string{""}, sizes: []int64{size}}
	for i := range list {
		must(t, list[i].on(s))
		list[i].onModel(model)
		_, size := s.Size()
		w.held, w.sizes = append(w.held, model.String()), append(w.sizes, size)
	}
	var err error
	w.log, err = m.ReadFile("/state/" + Name)
	must(t, err)
	must(t, s.Close())
	return w
}
