package pipeline

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// hosted is a source. Its constructor starts a goroutine with the name fake/watch. A hosted records
// when its instances start and end.
type hosted struct {
	*fakeSource
	watch func(ctx context.Context, h stream.SourceHost) error // nil waits for the end of ctx

	mu     sync.Mutex
	events []string
	host   stream.SourceHost // of the last instance
}

func (s *hosted) record(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, what)
}

func (s *hosted) recorded() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.events, ", ")
}

func (s *hosted) use() config.Use {
	create := func(_ any, h stream.Host) (any, error) {
		host := h.(stream.SourceHost)
		s.mu.Lock()
		s.host = host
		s.mu.Unlock()
		s.record("new")
		host.Go("fake/watch", func(ctx context.Context) error {
			s.record("started")
			defer s.record("stopped")
			if s.watch != nil {
				return s.watch(ctx, host)
			}
			<-ctx.Done()
			return nil
		})
		return s, nil
	}
	return config.Use{Component: stream.Component{Role: stream.SourceRole, Name: "fake", New: create}}
}

// Open implements stream.Source.
func (s *hosted) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r, err := s.fakeSource.Open(ctx, o)
	return &hostedReader{r, s}, err
}

type hostedReader struct {
	stream.Reader
	s *hosted
}

// Close implements stream.Reader.
func (r *hostedReader) Close() error {
	r.s.record("reader closed")
	return r.Reader.Close()
}

// flaky returns the config of a sink that fails to open while failing is true.
func flaky(failing *atomic.Bool, sink *fakeSink) config.Use {
	f := &faults{site: "sink open", calls: make(map[string]int)}
	for n := range 1000 {
		f.at = append(f.at, n+1)
	}
	f.how = func() error {
		if failing.Load() {
			return errors.New("no such table")
		}
		return nil
	}
	return (&faulty{sink: sink, faults: f}).sinkUse()
}

func TestSourceGoroutineOutlivesRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hosted{fakeSource: &fakeSource{lines: numbered(10), size: 5}}
		var failing atomic.Bool
		failing.Store(true)
		sinks := []*fakeSink{{}, {}}
		e := jobOf(t, vfstest.New(), Options{}, s.use(),
			config.Route{Sink: flaky(&failing, sinks[0])}, config.Route{Sink: flaky(&failing, sinks[1])})
		if got := s.recorded(); got != "new" {
			t.Errorf("before Run: %s", got)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(5 * time.Minute)
		for _, r := range e.statusWithoutTree().Routes {
			if r.Health != healthRestarting || r.Starts < 8 {
				t.Errorf("route %s is %s after %d starts", r.Name, r.Health, r.Starts)
			}
		}
		if got := s.recorded(); got != "new, started" {
			t.Errorf("while the routes wait: %s", got)
		}
		tree := e.Tree()
		node := childOf(&tree.Children[0], "fake/watch")
		if node == nil || node.State != supervise.Running {
			t.Errorf("the tree does not show the source's goroutine:\n%v", tree)
		}
		if got := s.host.Routes(); !slices.Equal(got, []string{"p/r0", "p/r1"}) {
			t.Errorf("Routes = %v", got)
		}
		failing.Store(false)
		time.Sleep(time.Minute)
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		if len(sinks[0].got) != 10 || len(sinks[1].got) != 10 {
			t.Errorf("%d and %d records arrived", len(sinks[0].got), len(sinks[1].got))
		}
		if got, want := s.recorded(), "new, started, reader closed, reader closed, stopped"; got != want {
			t.Errorf("at the end: %s, want %s", got, want)
		}
	})
}

func TestSourceGoroutineFails(t *testing.T) {
	hows := map[string]func() error{
		"error": func() error { return errors.New("struck") },
		"panic": func() error { panic("struck") },
	}
	for name, how := range hows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &hosted{fakeSource: &fakeSource{lines: numbered(10), size: 5}}
				var instances atomic.Int32
				s.watch = func(ctx context.Context, _ stream.SourceHost) error {
					if instances.Add(1) <= 2 && retry.Sleep(ctx, time.Second) == nil {
						return how()
					}
					<-ctx.Done()
					return nil
				}
				sink := &fakeSink{}
				e := jobOf(t, vfstest.New(), Options{}, s.use(), config.Route{Sink: use(stream.SinkRole, sink)})
				ended := make(chan error, 1)
				go func() { ended <- e.Run(t.Context()) }()
				time.Sleep(1050 * time.Millisecond)
				r := e.statusWithoutTree().Routes[0]
				if r.Health != healthRestarting || !strings.Contains(r.Error, "struck") {
					t.Errorf("after the failure the route is %s because of %v", r.Health, r.Error)
				}
				time.Sleep(time.Minute)
				if r := e.statusWithoutTree().Routes[0]; r.Health != healthRunning ||
					r.Starts != 3 || r.Delivered != 10 {
					t.Errorf("%s after %d starts, %d delivered", r.Health, r.Starts, r.Delivered)
				}
				e.Drain()
				if err := <-ended; err != nil {
					t.Errorf("Run = %v", err)
				}
				once := "new, started, "
				end := "reader closed, stopped"
				// a failure ends watch and reader at the same time, in either order
				got := strings.ReplaceAll(s.recorded(), "stopped, reader closed", end)
				if want := once + end + ", " + once + end + ", " + once + end; got != want {
					t.Errorf("diary: %s\nwant:  %s", got, want)
				}
			})
		})
	}
}

// TestSourceFailsWhileDraining drains a pipeline with a source that always fails at once.
func TestSourceFailsWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hosted{fakeSource: &fakeSource{}}
		s.watch = func(context.Context, stream.SourceHost) error { return errors.New("struck") }
		e := jobOf(t, vfstest.New(), Options{}, s.use(), config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Minute)
		began := time.Now()
		e.Drain()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "struck") || time.Since(began) > time.Second {
			t.Errorf("Run = %v, %v after Drain", err, time.Since(began))
		}
	})
}

// closings records when a directory in sources/ is closed.
type closings struct {
	vfs.FS
	note func(string)
}

func (f closings) MakeDir(path string, perm os.FileMode) (vfs.Dir, error) {
	d, err := f.FS.MakeDir(path, perm)
	return &closingDir{d, path, f.note}, err
}

type closingDir struct {
	vfs.Dir
	path string
	note func(string)
}

func (d *closingDir) MakeDir(name string, perm os.FileMode) (vfs.Dir, error) {
	below, err := d.Dir.MakeDir(name, perm)
	return &closingDir{below, d.path + "/" + name, d.note}, err
}

func (d *closingDir) Rename(from string, to vfs.Dir, name string) error {
	return d.Dir.Rename(from, to.(*closingDir).Dir, name)
}

func (d *closingDir) RenameNew(from string, to vfs.Dir, name string) error {
	return d.Dir.RenameNew(from, to.(*closingDir).Dir, name)
}

func (d *closingDir) Close() error {
	if strings.Contains(d.path, "/sources/") {
		d.note("closed " + d.path)
	}
	return d.Dir.Close()
}

// TestSourceStopsAfterRoutes checks that the source stops after the routes, both when the engine
// drains and when it stops. The source can use its directory to the end.
func TestSourceStopsAfterRoutes(t *testing.T) {
	for _, way := range []string{"drain", "stop"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &hosted{fakeSource: &fakeSource{lines: numbered(10), size: 5}}
				s.watch = func(ctx context.Context, h stream.SourceHost) error {
					dir, err := h.State()
					if err != nil {
						return err
					}
					if again, err := h.State(); again != dir || err != nil {
						t.Errorf("State again: %v, another directory: %v", err, again != dir)
					}
					<-ctx.Done()
					if _, err := dir.Entries("."); err != nil {
						t.Errorf("the directory is closed while the goroutine runs: %v", err)
					}
					return nil
				}
				route := config.DefaultRoute("r0", "/state")
				route.Sink = use(stream.SinkRole, &fakeSink{})
				file := &config.Config{State: "/state", Pipelines: []config.Pipeline{
					{Name: "p", Source: s.use(), Routes: []config.Route{route}},
				}}
				e, err := New(file, Options{FS: closings{vfstest.New(), s.record},
					Log: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.host.State(); err == nil || !strings.Contains(err.Error(), "does not run yet") {
					t.Errorf("State before Run: %v", err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				time.Sleep(time.Second)
				if way == "drain" {
					e.Drain()
				} else {
					cancel()
				}
				if err := <-ended; err != nil && way == "drain" {
					t.Errorf("Run = %v", err)
				}
				cancel()
				want := "new, started, reader closed, stopped, closed /state/sources/p"
				if got := s.recorded(); got != want {
					t.Errorf("diary: %s\nwant:  %s", got, want)
				}
				if _, err := s.host.State(); err == nil {
					t.Error("State succeeds after the end")
				}
				s.host.Go("fake/late", func(context.Context) error {
					t.Error("a goroutine runs after the end")
					return nil
				})
				synctest.Wait()
			})
		})
	}
}

// countStarts adds one to the number in the file of the source's directory.
func countStarts(h stream.SourceHost) (n int, err error) {
	dir, err := h.State()
	if err != nil {
		return 0, err
	}
	f, err := dir.OpenFile("starts", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return 0, err
	}
	if _, err := f.Write([]byte("x")); err != nil {
		return 0, err
	}
	return len(text) + 1, errors.Join(f.Sync(), f.Close(), dir.Sync())
}

// TestSourceStateSurvives runs a pipeline until its source has started three times. Then it runs
// the pipeline from each state that a crash may have left. The state that the source has synced
// must always be there.
func TestSourceStateSurvives(t *testing.T) {
	type cut struct {
		fs   *vfstest.Mem
		have int32
		call vfstest.Call
	}
	const starts = 3
	var counted atomic.Int32 // starts that are durable
	var cuts []cut
	run := func(t *testing.T, m *vfstest.Mem, until int) (last int32) {
		done := make(chan struct{})
		s := &hosted{fakeSource: &fakeSource{}}
		s.watch = func(ctx context.Context, h stream.SourceHost) error {
			n, err := countStarts(h)
			if err != nil {
				return err
			}
			last = int32(n)
			counted.Store(last)
			if n >= until {
				close(done)
				<-ctx.Done()
				return nil
			}
			return errors.New("once more")
		}
		e := jobOf(t, m, Options{}, s.use(), config.Route{Sink: use(stream.SinkRole, &fakeSink{})})
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		<-done
		time.Sleep(time.Second) // a route that drains before it runs reports its last failure
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		return last
	}
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		var mu sync.Mutex
		m.Watch(func(c vfstest.Call) {
			mu.Lock()
			defer mu.Unlock()
			cuts = append(cuts, cut{m.Crash(vfstest.DataNone, vfstest.NamesNone, uint64(len(cuts))), counted.Load(), c})
		})
		if n := run(t, m, starts); n != starts {
			t.Errorf("%d starts", n)
		}
		m.Watch(nil)
		if n := run(t, m, 0); n != starts+1 {
			t.Errorf("the next process finds %d starts before it, want %d", n-1, starts)
		}
	})
	if len(cuts) < 20 {
		t.Fatalf("%d crashes are too few to show anything", len(cuts))
	}
	for _, c := range cuts {
		synctest.Test(t, func(t *testing.T) {
			if n := run(t, c.fs, 0); n <= c.have {
				t.Errorf("crash after %v: start %d, though %d were durable", c.call, n, c.have)
			}
		})
	}
}

func TestSourceDirectoriesAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfstest.New()
		file := &config.Config{State: "/state"}
		for _, name := range []string{"a", "b", "An odd name"} {
			s := &hosted{fakeSource: &fakeSource{}}
			s.watch = func(_ context.Context, h stream.SourceHost) error {
				if n, err := countStarts(h); n != 1 || err != nil {
					t.Errorf("%s: start %d, %v", name, n, err)
				}
				return nil
			}
			route := config.DefaultRoute("r0", "/state")
			route.Sink = use(stream.SinkRole, &fakeSink{})
			pipeline := config.Pipeline{Name: name, Source: s.use(), Routes: []config.Route{route}}
			file.Pipelines = append(file.Pipelines, pipeline)
		}
		e, err := New(file, Options{FS: m, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Second)
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		for _, name := range []string{"a", "b", "%41n%20odd%20name"} {
			if text, err := m.ReadFile("/state/sources/" + name + "/starts"); err != nil || string(text) != "x" {
				t.Errorf("sources/%s: %q, %v", name, text, err)
			}
		}
	})
}

func TestFileName(t *testing.T) {
	long := strings.Repeat("n", 300)
	for name, want := range map[string]string{
		"words": "words", "a-b_9": "a-b_9", "": "%", "..": "%2E%2E", "A": "%41",
		"a/b": "a%2Fb", "ü": "%C3%BC", "%": "%25",
		strings.Repeat("n", 100): strings.Repeat("n", 100),
	} {
		if got := fileName(name); got != want {
			t.Errorf("fileName(%q) = %q, want %q", name, got, want)
		}
	}
	if a, b := fileName(long), fileName(long+"n"); len(a) != 100 || len(b) != 100 || a == b {
		t.Errorf("long names become %q and %q", a, b)
	}
}

// TestSourceStaysWhileRoutesChange adds, removes and replaces routes, at last all of them. The
// source must keep running.
func TestSourceStaysWhileRoutesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hosted{fakeSource: &fakeSource{lines: numbered(10), size: 5}}
		source := s.use()
		source.Options = new(struct{})
		sinks := make(map[string]*fakeSink)
		with := func(routes ...string) *config.Config {
			p := config.Pipeline{Name: "p", Source: source}
			for _, name := range routes {
				if sinks[name] == nil {
					sinks[name] = &fakeSink{}
				}
				r := config.DefaultRoute(name, "/state")
				r.Sink = use(stream.SinkRole, sinks[name])
				r.Sink.Options = source.Options
				p.Routes = append(p.Routes, r)
			}
			return &config.Config{State: "/state", Pipelines: []config.Pipeline{p}}
		}
		e, err := New(with("a", "b"), Options{FS: vfstest.New(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Second)
		for _, routes := range [][]string{{"a", "b", "c"}, {"c"}, {"d", "e"}} {
			if err := e.Apply(t.Context(), with(routes...)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			var want []string
			for _, name := range routes {
				want = append(want, "p/"+name)
				sinks[name].mu.Lock()
				arrived := len(sinks[name].got)
				sinks[name].mu.Unlock()
				if arrived != 10 {
					t.Errorf("%v: %d records arrived by %s", routes, arrived, name)
				}
			}
			if got := s.host.Routes(); !slices.Equal(got, want) {
				t.Errorf("Routes = %v, want %v", got, want)
			}
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v", err)
		}
		got := s.recorded()
		if strings.Count(got, "new") != 1 || strings.Count(got, "started") != 1 || !strings.HasSuffix(got, "stopped") {
			t.Errorf("diary: %s", got)
		}
	})
}
