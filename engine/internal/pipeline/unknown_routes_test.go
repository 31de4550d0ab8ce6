package pipeline

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestStrays checks that a start reports state of routes that are not in the config. If there is
// such state, the start must also report the routes that start from the beginning.
func TestStrays(t *testing.T) {
	m := vfstest.New()
	var log bytes.Buffer
	run := func(routes ...string) string {
		log.Reset()
		var all []config.Route
		for _, name := range routes {
			r := config.DefaultRoute(name, "/state")
			r.Sink = use(stream.SinkRole, &fakeSink{})
			all = append(all, r)
		}
		e, err := New(&config.Config{State: "/state", Pipelines: []config.Pipeline{
			{Name: "p", Source: use(stream.SourceRole, &fakeSource{lines: numbered(10), size: 5}),
				Routes: all},
		}}, Options{Once: true, FS: m, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	const strays, fresh = "routes that are not in the config", "route starts from the beginning"
	for _, c := range []struct {
		routes        []string
		strays, fresh string // in the line; "": there is no such line
	}{
		{[]string{"a", "b"}, "", ""},
		{[]string{"a", "b"}, "", ""},
		{[]string{"a", "b", "c"}, "", ""},
		{[]string{"a", "b"}, "routes=[p/c]", ""},
		{[]string{"a", "d"}, "routes=\"[p/b p/c]\"", "route=p/d"},
		{[]string{"a", "d"}, "routes=\"[p/b p/c]\"", ""},
	} {
		text := run(c.routes...)
		for message, want := range map[string]string{strays: c.strays, fresh: c.fresh} {
			line := ""
			for l := range strings.Lines(text) {
				if strings.Contains(l, message) {
					line += l
				}
			}
			if (line == "") != (want == "") || !strings.Contains(line, want) {
				t.Errorf("routes %v: %q, want %q", c.routes, line, want)
			}
		}
	}
}

// TestStraysAfterReload checks that a reload reports a route that starts from the beginning, if the
// checkpoint has state of a removed route: the new route may be the removed one, renamed. Other
// reloads report nothing, even if a running route has no progress yet.
func TestStraysAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		source := use(stream.SourceRole, &fakeSource{lines: numbered(10), size: 5})
		empty := use(stream.SourceRole, &fakeSource{})
		idle := config.DefaultRoute("idle", "/state")
		idle.Sink = use(stream.SinkRole, &fakeSink{})
		of := func(names ...string) *config.Config {
			p := config.Pipeline{Name: "p", Source: source}
			for _, name := range names {
				r := config.DefaultRoute(name, "/state")
				r.Sink = use(stream.SinkRole, &fakeSink{})
				p.Routes = append(p.Routes, r)
			}
			q := config.Pipeline{Name: "q", Source: empty, Routes: []config.Route{idle}}
			return &config.Config{State: "/state", Pipelines: []config.Pipeline{p, q}}
		}
		e, err := New(of("a", "b"), Options{
			FS: vfstest.New(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for _, c := range []struct {
			routes []string
			want   string // "": nothing is reported
		}{
			{[]string{"a"}, ""},
			{[]string{"a", "renamed"}, "route=p/renamed others=[p/b]"},
			{[]string{"a", "renamed"}, ""},
		} {
			log.Reset()
			if err := e.Apply(t.Context(), of(c.routes...)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			text := log.String()
			if strings.Contains(text, "level=WARN") != (c.want != "") ||
				!strings.Contains(text, c.want) {
				t.Errorf("a reload with routes %v logs:\n%s\nwant %q", c.routes, text, c.want)
			}
		}
		e.Drain()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
