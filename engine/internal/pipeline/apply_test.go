package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/internal/testsize"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// applied is a running engine with a config that changes. A sink in it is identified by its
// pipeline, its route and a version, which stands for its options.
type applied struct {
	t       *testing.T
	e       *Engine
	ended   chan error
	source  *fakeSource
	created int // sources
	sinks   map[string]*fakeSink
	pace    atomic.Int64 // of a delivery, in nanoseconds
}

type appliedOptions struct {
	Version string `yaml:"version"`
}

// config returns a config with a route for each word, such as "p/r=1": pipeline p, route r, and
// version 1 of the sink's options. In "p@2/r=1", the source's options have version 2.
func (a *applied) config(words ...string) *config.Config {
	c := &config.Config{State: "/state"}
	for _, word := range words {
		key, version, _ := strings.Cut(word, "=")
		from, name, _ := strings.Cut(key, "/")
		pipeline, of, _ := strings.Cut(from, "@")
		i := slices.IndexFunc(c.Pipelines, func(p config.Pipeline) bool { return p.Name == pipeline })
		if i < 0 {
			i = len(c.Pipelines)
			c.Pipelines = append(c.Pipelines, config.Pipeline{Name: pipeline, Source: config.Use{
				Component: stream.Component{Role: stream.SourceRole, Name: "fake",
					New: func(any, stream.Host) (any, error) {
						a.created++
						return a.source, nil
					}},
				Options: &appliedOptions{of},
			}})
		}
		r := config.DefaultRoute(name, "/state")
		r.Flow.Window, r.Flow.Size = "fixed", 1
		r.Sink = config.Use{Options: &appliedOptions{version}, Component: stream.Component{
			Role: stream.SinkRole, Name: "fake", New: func(any, stream.Host) (any, error) {
				if version == "refused" {
					return nil, errors.New("no such version")
				}
				return a.sink(pipeline + "/" + name + "=" + version), nil
			},
		}}
		c.Pipelines[i].Routes = append(c.Pipelines[i].Routes, r)
	}
	return c
}

func (a *applied) sink(word string) *fakeSink {
	if a.sinks[word] == nil {
		a.sinks[word] = &fakeSink{deliver: func(ctx context.Context, _ stream.Attempt) error {
			if retry.Sleep(ctx, time.Duration(a.pace.Load())) != nil {
				return context.Cause(ctx)
			}
			return nil
		}}
	}
	return a.sinks[word]
}

func startApplied(t *testing.T, lines int, words ...string) *applied {
	t.Helper()
	a := &applied{
		t: t, ended: make(chan error, 1), sinks: make(map[string]*fakeSink),
		source: &fakeSource{lines: numbered(lines), size: 1},
	}
	a.pace.Store(int64(10 * time.Millisecond))
	var err error
	a.e, err = New(a.config(words...), Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { a.ended <- a.e.Run(t.Context()) }()
	synctest.Wait()
	return a
}

func (a *applied) apply(words ...string) {
	a.t.Helper()
	if err := a.e.Apply(a.t.Context(), a.config(words...)); err != nil {
		a.t.Fatalf("Apply(%v) = %v", words, err)
	}
}

// got returns the lines that arrived at the sinks, in the order of words.
func (a *applied) got(words ...string) (lines []string) {
	for _, word := range words {
		s := a.sink(word)
		s.mu.Lock()
		lines = append(lines, s.got...)
		s.mu.Unlock()
	}
	return lines
}

// route returns the status of a route.
func (a *applied) route(pipeline, name string) status.Route {
	a.t.Helper()
	routes := a.e.statusWithoutTree().Routes
	i := slices.IndexFunc(routes, func(r status.Route) bool { return r.Pipeline == pipeline && r.Name == name })
	if i < 0 {
		a.t.Fatalf("there is no route %s/%s", pipeline, name)
	}
	conserved(a.t, routes[i])
	return routes[i]
}

func (a *applied) stop() {
	a.t.Helper()
	a.e.Drain()
	if err := <-a.ended; err != nil {
		a.t.Errorf("Run = %v", err)
	}
}

// TestApplyRoutes checks that an unchanged route neither restarts nor misses data while other
// routes of its pipeline are changed, added and removed. Each line arrives at each route exactly
// once, and the source is not recreated.
func TestApplyRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 1000
		a := startApplied(t, lines, "p/same=1", "p/changed=1", "p/removed=1")
		time.Sleep(3 * time.Second)
		before := a.route("p", "same").Delivered
		a.apply("p/added=1", "p/same=1", "p/changed=2")
		removed := len(a.got("p/removed=1"))
		if before < 100 || before > 500 || removed < 100 {
			t.Fatalf("%d and %d of %d lines were delivered at the change: it was not in the middle",
				before, removed, lines)
		}
		var names []string
		for _, r := range a.e.statusWithoutTree().Routes {
			names = append(names, r.Name)
		}
		if !slices.Equal(names, []string{"added", "same", "changed"}) {
			t.Errorf("the routes are %v, want those of the config in its order", names)
		}
		time.Sleep(time.Minute)
		if r := a.route("p", "same"); r.Starts != 1 || r.Delivered != lines ||
			!slices.Equal(a.got("p/same=1"), numbered(lines)) {
			t.Errorf("the unchanged route: %d starts, %d delivered, want 1 and %d in order",
				r.Starts, r.Delivered, lines)
		}
		first := len(a.got("p/changed=1"))
		if got := a.got("p/changed=1", "p/changed=2"); !slices.Equal(got, numbered(lines)) ||
			first == 0 || first == lines {
			t.Errorf("the changed route: %d lines, %d of them before the change, want %d in all, "+
				"in order", len(got), first, lines)
		}
		if !slices.Equal(a.got("p/added=1"), numbered(lines)) {
			t.Errorf("the added route: %d lines, want %d", len(a.got("p/added=1")), lines)
		}
		if now := len(a.got("p/removed=1")); now != removed {
			t.Errorf("the removed route delivered %d lines after it was removed", now-removed)
		}
		if a.created != 1 {
			t.Errorf("the source was created %d times", a.created)
		}
		a.apply("p/added=1", "p/same=1", "p/changed=2", "p/removed=1") // it resumes where it was
		time.Sleep(time.Minute)
		if got := a.got("p/removed=1"); !slices.Equal(got, numbered(lines)) {
			t.Errorf("the route that came back: %d lines in all, want %d, each once", len(got), lines)
		}
		a.stop()
	})
}

// TestApplyPipelines checks the same for pipelines as TestApplyRoutes does for routes: unchanged
// ones continue while others are changed, added and removed. A pipeline with a changed source is
// replaced.
func TestApplyPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 500
		a := startApplied(t, lines, "same/r=1", "other@1/r=1", "removed/r=1")
		time.Sleep(2 * time.Second)
		a.apply("other@2/r=1", "added/r=1", "same/r=1")
		removed := len(a.got("removed/r=1"))
		time.Sleep(time.Minute)
		for _, name := range []string{"same", "other", "added"} {
			if got := a.got(name + "/r=1"); !slices.Equal(got, numbered(lines)) {
				t.Errorf("%s: %d lines, want %d, each once", name, len(got), lines)
			}
		}
		if r := a.route("same", "r"); r.Starts != 1 || r.Delivered != lines {
			t.Errorf("the unchanged pipeline: %d starts, %d delivered", r.Starts, r.Delivered)
		}
		if r := a.route("other", "r"); r.Delivered >= lines {
			t.Errorf("the changed pipeline counts %d: it was not replaced", r.Delivered)
		}
		if now := len(a.got("removed/r=1")); now != removed || removed == lines {
			t.Errorf("the removed pipeline delivered %d lines, and %d later", removed, now-removed)
		}
		if a.created != 5 {
			t.Errorf("%d sources were created, want 3 and then 2", a.created)
		}
		a.apply("new/r=1") // no old pipeline remains, and the engine does not end
		time.Sleep(time.Minute)
		if got := a.got("new/r=1"); !slices.Equal(got, numbered(lines)) {
			t.Errorf("the new pipeline: %d lines", len(got))
		}
		if tree := a.e.Tree().String(); strings.Contains(tree, "same") || !strings.Contains(tree, "new") {
			t.Errorf("the tree is\n%s", tree)
		}
		a.stop()
	})
}

// TestApplyRefuses checks that a refused config changes nothing.
func TestApplyRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 300, "p/r=1", "p/s=1")
		time.Sleep(time.Second)
		elsewhere, admin := a.config("p/r=1"), a.config("p/r=1")
		elsewhere.State, admin.Admin.Address = "/other", "127.0.0.1:7070"
		for _, tc := range []struct {
			c    *config.Config
			want string
		}{
			{elsewhere, "the state directory is /state and would be /other: restart to change it"},
			{admin, "the admin address or its settings differ: restart to change them"},
			{a.config("q/r=1", "p/r=2", "p/s=refused"), `pipeline "p": route "s": sink fake: no such version`},
		} {
			if err := a.e.Apply(t.Context(), tc.c); err == nil || err.Error() != tc.want {
				t.Errorf("Apply = %v, want %s", err, tc.want)
			}
		}
		time.Sleep(time.Minute)
		for _, r := range a.e.statusWithoutTree().Routes {
			if r.Starts != 1 || r.Delivered != 300 || r.Health != healthRunning {
				t.Errorf("%s: %d starts, %d delivered, %s", r.Name, r.Starts, r.Delivered, r.Health)
			}
		}
		a.stop()
		if err := a.e.Apply(t.Context(), a.config("p/r=2")); err == nil ||
			!strings.Contains(err.Error(), "not running") {
			t.Errorf("after the end, Apply = %v", err)
		}
	})
}

// TestApplyWhileDraining checks that an engine that drains refuses a new configuration.
func TestApplyWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 5, "p/r=1")
		a.pace.Store(int64(20 * time.Second)) // a batch is in flight during the drain
		time.Sleep(time.Second)
		a.e.Drain()
		if err := a.e.Apply(t.Context(), a.config("p/r=2")); err == nil ||
			!strings.Contains(err.Error(), "draining") {
			t.Errorf("Apply = %v", err)
		}
		time.Sleep(5 * time.Minute)
		a.stop()
	})
}

// TestApplyGivesUpDraining ends the context of Apply while a removed route drains. Apply must stop
// that route. The new route must deliver the abandoned batch again.
func TestApplyGivesUpDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 5, "p/r=1", "p/s=1")
		a.pace.Store(int64(20 * time.Second))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begun := time.Now()
		if err := a.e.Apply(ctx, a.config("p/r=2", "p/s=1")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("Apply took %v, want 5s", took)
		}
		time.Sleep(5 * time.Minute)
		if got := a.got("p/r=1", "p/r=2"); !slices.Equal(got, numbered(5)) {
			t.Errorf("%d lines arrived: %v", len(got), got)
		}
		a.stop()
	})
}

// TestApplyWhileFailing applies a config while routes and pipelines wait for a restart. Apply must
// replace them without waiting, and the new ones must run.
func TestApplyWhileFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 10, "p/r=1", "q/r=1")
		bad := a.config("p/r=bad", "q@bad/r=1")
		bad.Pipelines[0].Routes[0].Sink.Component.New = func(any, stream.Host) (any, error) {
			return &shutSink{}, nil
		}
		bad.Pipelines[1].Source.Component.New = func(_ any, h stream.Host) (any, error) {
			return &failingSource{a.source, h}, nil
		}
		time.Sleep(time.Minute)
		if err := a.e.Apply(t.Context(), bad); err != nil {
			t.Fatal(err)
		}
		a.source.mu.Lock()
		a.source.lines = numbered(20)
		a.source.mu.Unlock()
		time.Sleep(10 * time.Minute)
		for _, name := range []string{"p", "q"} {
			if r := a.route(name, "r"); r.Health != healthRestarting {
				t.Errorf("%s is %s, want %s", name, r.Health, healthRestarting)
			}
		}
		begun := time.Now()
		a.apply("p/r=2", "q/r=2")
		if took := time.Since(begun); took > 31*time.Second {
			t.Errorf("Apply took %v", took)
		}
		time.Sleep(time.Minute)
		for _, name := range []string{"p", "q"} {
			if got := a.got(name+"/r=1", name+"/r=2"); !slices.Equal(got, numbered(20)) {
				t.Errorf("%s: %d lines arrived, want 20: %v", name, len(got), got)
			}
		}
		a.stop()
	})
}

// shutSink is a sink that cannot be opened.
type shutSink struct{ fakeSink }

// Open implements stream.Sink.
func (*shutSink) Open(context.Context, stream.SinkOptions) error { return errors.New("no such table") }

// failingSource is a source with a goroutine that fails.
type failingSource struct {
	*fakeSource
	host stream.Host
}

// Open implements stream.Source.
func (s *failingSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	s.host.Go("hopeless", func(context.Context) error { return errors.New("hopeless") })
	return s.fakeSource.Open(ctx, o)
}

// TestApplyKeepsFinishing checks that a partition is finished when all current routes have settled
// it. A changed route counts again: its new version must settle the partition. A removed route does
// not count.
func TestApplyKeepsFinishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 1, "p/one=1", "p/two=1", "p/three=1")
		p := a.e.pipelines()[0]
		part := stream.Partition{ID: "x", Name: "x"}
		report := func(i int) { p.finish(t.Context(), p.routes()[i], part) }
		report(0)
		report(1)
		a.apply("p/one=1", "p/two=2", "p/three=1")
		report(2)
		if len(a.source.finished) > 0 {
			t.Error("it was finished before the changed route had settled it")
		}
		report(1)
		if !slices.Equal(a.source.finished, []string{"x"}) {
			t.Errorf("finished %v, want x once", a.source.finished)
		}
		part = stream.Partition{ID: "y", Name: "y"}
		report(0)
		a.apply("p/one=1", "p/three=1")
		report(1)
		if !slices.Equal(a.source.finished, []string{"x", "y"}) {
			t.Errorf("finished %v, want y without the route that was removed", a.source.finished)
		}
		a.stop()
	})
}

// TestApplyRandom applies random sequences of changes, and cancels some calls of Apply early. At
// the end every route of the last config has all lines. Unchanged routes have each line once and in
// order.
func TestApplyRandom(t *testing.T) {
	for seed := range testsize.Of[uint64](5, 20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				const lines = 400
				words := func() (out []string) {
					for _, p := range []string{"p", "q", "s"} {
						source := rnd.IntN(4) / 3
						for _, r := range []string{"a", "b"} {
							if p == "p" || rnd.IntN(3) > 0 {
								out = append(out, fmt.Sprintf("%s@%d/%s=%d", p, source, r, rnd.IntN(2)))
							}
						}
					}
					rnd.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
					return append(out, "steady/r=1")
				}
				a := startApplied(t, lines, words()...)
				last := []string{}
				for range 15 {
					time.Sleep(time.Duration(rnd.IntN(int(time.Second))))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(int(20*time.Millisecond))))
					last = words()
					if err := a.e.Apply(ctx, a.config(last...)); err != nil {
						t.Fatal(err)
					}
					cancel()
				}
				time.Sleep(5 * time.Minute)
				for _, word := range last {
					path, _, _ := strings.Cut(word, "=")
					from, r, _ := strings.Cut(path, "/")
					p, _, _ := strings.Cut(from, "@")
					arrived := a.got(p+"/"+r+"=0", p+"/"+r+"=1")
					slices.Sort(arrived)
					if n := len(slices.Compact(arrived)); n != lines {
						t.Errorf("%s/%s: %d of %d lines arrived", p, r, n, lines)
					}
				}
				if got := a.got("steady/r=1"); !slices.Equal(got, numbered(lines)) ||
					a.route("steady", "r").Starts != 1 {
					t.Errorf("the unchanged route has %d lines, want %d", len(got), lines)
				}
				a.stop()
			})
		})
	}
}

// TestApplyAfterStuck checks that an Apply that could not stop a route makes every later Apply
// fail. Even a return to the config before the failed Apply must fail, because that Apply has
// already stopped other routes.
func TestApplyAfterStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 5, "p/r=1", "q/r=1")
		release := make(chan bool)
		a.sink("p/r=2").deliver = func(context.Context, stream.Attempt) error { <-release; return nil }
		a.apply("p/r=2", "q/r=1")
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, words := range [][]string{{"p/r=3", "q/r=3"}, {"p/r=2", "q/r=1"}} {
			err := a.e.Apply(ctx, a.config(words...))
			if err == nil || !strings.Contains(err.Error(), "p/r: it has not stopped within") {
				t.Errorf("Apply(%v) = %v", words, err)
			}
		}
		close(release)
		a.e.Drain()
		<-a.ended
	})
}
