package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/status"
)

var secondsOut = regexp.MustCompile(`"seconds":[0-9.e-]+`)

func someRoutes() engine.Status {
	return engine.Status{
		Seconds: 1.234,
		Routes: []status.Route{{
			Pipeline: "access", Name: "main", ReadRecords: 10000, ReadBytes: 2370789,
			Delivered: 9990, Dead: 2, Dropped: 3,
			InFlight: 1, Waiting: 4, Attempts: 41, Redelivered: 1, ReplayBytes: 23456,
			ReplayBoundBytes: 32 << 20, Health: "running",
			Workers: []status.Worker{{State: "NORMAL"}, {State: "OPEN"}},
		}, {
			Pipeline: "orders", Name: "archive", ReplayBoundBytes: 32 << 20, Health: "finished",
		}},
	}
}

// TestResultLine pins the last line of `run --once --json`, because other programs parse it.
func TestResultLine(t *testing.T) {
	inFolder(t)
	e := newFake()
	e.end = someRoutes()
	got := newProgram(e, nil).try(t, "run", "--once", "--json", "penstock.yaml")
	want := `{"ok":true,"seconds":0,"pipelines":[` +
		`{"pipeline":"access","route":"main","read_records":10000,"read_bytes":2370789,"delivered":9990,"dead":2,"dropped":3,` +
		`"in_flight":1,"waiting":4,"attempts":41,"redelivered":1},` +
		`{"pipeline":"orders","route":"archive","read_records":0,"read_bytes":0,"delivered":0,"dead":0,"dropped":0,` +
		`"in_flight":0,"waiting":0,"attempts":0,"redelivered":0}]}` + "\n"
	if out := secondsOut.ReplaceAllString(got.out, `"seconds":0`); out != want ||
		got.code != exitOK || got.stderr != "" {
		t.Errorf("code %d, stderr %q, stdout\n%swant\n%s", got.code, got.stderr, got.out, want)
	}
}

func TestResultLineOfFailure(t *testing.T) {
	inFolder(t)
	e := newFake()
	e.err = errors.New("access/main: the guard stopped it")
	e.end = someRoutes()
	got := newProgram(e, nil).try(t, "run", "--once", "--json", "penstock.yaml")
	var line runResult
	if err := json.Unmarshal([]byte(got.out), &line); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	if line.OK || line.Error != e.err.Error() || len(line.Pipelines) != 2 || got.code != exitUnfinished {
		t.Errorf("code %d, line %+v", got.code, line)
	}
	if want := "penstock: access/main: the guard stopped it\n"; got.stderr != want {
		t.Errorf("stderr %q, want %q", got.stderr, want)
	}
	if !strings.HasPrefix(got.out, `{"ok":false,"error":"access/main: `) {
		t.Errorf("line %s", got.out)
	}
}

func TestSummary(t *testing.T) {
	path := testdata(t, "summary.golden")
	inFolder(t)
	e := newFake()
	e.end = someRoutes()
	first := newProgram(e, nil).try(t, "run", "--once", "penstock.yaml")
	e = newFake()
	e.end = engine.Status{Seconds: 1, Routes: someRoutes().Routes[1:]}
	again := newProgram(e, nil).try(t, "run", "--once", "penstock.yaml")
	golden(t, path, first.out+"---- again\n"+again.out+"---- progress\n"+progress(someRoutes()))
	if first.code != exitOK || again.code != exitOK || first.stderr+again.stderr != "" {
		t.Errorf("%+v, %+v", first, again)
	}
}

func TestProgressOfManyRoutes(t *testing.T) {
	s := engine.Status{Seconds: 10}
	for range 9 {
		s.Routes = append(s.Routes, someRoutes().Routes[0])
	}
	want := "all 9 routes after 10s: read 90,000 records (21.3 MB), delivered 89,910, dead 18, " +
		"dropped 27, in flight 9, waiting 36, " +
		"2.13 MB/s, redelivered 9 batches, 9 of 18 workers OPEN\n"
	if got := progress(s); got != want {
		t.Errorf("progress = %s, want %s", got, want)
	}
}

// TestSignals checks that the first signal drains and the second stops immediately.
func TestSignals(t *testing.T) {
	tests := []struct {
		name    string
		once    bool
		hangs   bool // the drain does not end
		signals []os.Signal
		health  string
		code    int
		stderr  string
	}{
		{"a run is drained", false, false, []os.Signal{syscall.SIGTERM}, "finished", exitOK,
			"finishing in-flight batches"},
		{"a second signal stops it", false, true, []os.Signal{os.Interrupt, os.Interrupt},
			"stopped", exitUnfinished, "stopped at once"},
		{"finite work is not done when interrupted", true, true, []os.Signal{os.Interrupt}, "draining", exitUnfinished,
			"stopped by a signal before everything was delivered"},
		{"unless it was just finished", true, true, []os.Signal{os.Interrupt}, "finished", exitOK,
			"finishing in-flight batches"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inFolder(t)
			synctest.Test(t, func(t *testing.T) {
				e := newFake()
				e.hangs, e.end = tt.hangs, someRoutes()
				for i := range e.end.Routes {
					e.end.Routes[i].Health = tt.health
				}
				signals := make(chan os.Signal, 2)
				args := []string{"run", "penstock.yaml"}
				if tt.once {
					args = append(args, "--once")
				}
				done := make(chan outcome)
				p := newProgram(e, signals)
				go func() {
					var out, stderr bytes.Buffer
					code := p.execute(context.Background(), args, nil, &out, &stderr)
					done <- outcome{code, out.String(), stderr.String()}
				}()
				<-e.running
				for _, s := range tt.signals {
					signals <- s
					synctest.Wait()
				}
				if tt.once { // the engine has noticed the drain
					e.drain.Do(func() { close(e.drained) })
				}
				got := <-done
				if got.code != tt.code || !strings.Contains(got.stderr, tt.stderr) {
					t.Errorf("code %d, stderr %q; want %d, %q", got.code, got.stderr, tt.code, tt.stderr)
				}
				if !strings.Contains(got.out, "access") {
					t.Errorf("no summary: %q", got.out)
				}
			})
		})
	}
}

// TestHangup checks the effects of SIGHUP. Usually it reloads the config file. A finite run, or a
// run without a config file, drains. During a drain, SIGHUP has no effect.
func TestHangup(t *testing.T) {
	for _, tt := range []struct {
		name    string
		args    []string
		signals []os.Signal
		reloads int
		stderr  string
	}{
		{"reloads a file", []string{"penstock.yaml"},
			[]os.Signal{syscall.SIGHUP, syscall.SIGHUP, os.Interrupt}, 2, "reloading the config"},
		{"drains a text", []string{"-c", "pipelines: {p: {source: {folder: {path: x}}, sink: drop}}"},
			[]os.Signal{syscall.SIGHUP}, 0, "finishing in-flight batches"},
		{"drains a finite run", []string{"--once", "penstock.yaml"},
			[]os.Signal{syscall.SIGHUP}, 0, "finishing in-flight batches"},
		{"is no second signal", []string{"penstock.yaml"},
			[]os.Signal{os.Interrupt, syscall.SIGHUP, syscall.SIGHUP}, 0,
			"finishing in-flight batches"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inFolder(t)
			synctest.Test(t, func(t *testing.T) {
				e := newFake()
				e.hangs, e.end = true, someRoutes()
				signals := make(chan os.Signal, 2)
				p := newProgram(e, signals)
				done := make(chan outcome)
				go func() {
					var out, stderr bytes.Buffer
					code := p.execute(context.Background(), append([]string{"run"}, tt.args...), nil, &out, &stderr)
					done <- outcome{code, out.String(), stderr.String()}
				}()
				<-e.running
				for _, s := range tt.signals {
					signals <- s
					synctest.Wait()
				}
				e.drain.Do(func() { close(e.drained) })
				got := <-done
				if len(e.reloads) != tt.reloads || !strings.Contains(got.stderr, tt.stderr) ||
					strings.Contains(got.stderr, "stopped at once") {
					t.Errorf("%d reloads, code %d, stderr %q", len(e.reloads), got.code, got.stderr)
				}
			})
		})
	}
}

// TestProgressLines checks that a line is printed on stderr every five seconds.
func TestProgressLines(t *testing.T) {
	inFolder(t)
	synctest.Test(t, func(t *testing.T) {
		e := newFake()
		e.end = engine.Status{Routes: someRoutes().Routes[:1]}
		var stderr bytes.Buffer
		p := newProgram(e, make(chan os.Signal))
		done := make(chan error)
		go func() {
			done <- p.drive(t.Context(), e, driven{}, &console{w: &stderr, log: slog.New(slog.DiscardHandler)})
		}()
		time.Sleep(16 * time.Second)
		e.Drain()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(stderr.String(), "access/main after "); got != 3 {
			t.Errorf("%d progress lines in 16 s, want 3:\n%s", got, stderr.String())
		}
	})
}

// panicEngine is an engine whose Run panics.
type panicEngine struct{ *fakeEngine }

func (panicEngine) Run(context.Context) error { panic("a bug") }

func TestPanicOfTheEngineIsAnError(t *testing.T) {
	p := newProgram(newFake(), nil)
	err := p.drive(t.Context(), panicEngine{newFake()}, driven{once: true},
		&console{w: io.Discard, log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("drive = %v", err)
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, _, err := logger(&b, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hidden")
	log.LogAttrs(t.Context(), slog.LevelWarn, "shown")
	if got := b.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"msg":"shown"`) {
		t.Errorf("log: %s", got)
	}
}

func TestFigures(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.00 kB", 12345: "12.3 kB", 999_499: "999 kB",
		999_500: "1.00 MB", 2370789: "2.37 MB",
		33554432: "33.6 MB", 1 << 62: "4.61 EB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestSummaryOfNothing checks that the summary of a run that has read nothing does not call the
// data delivered: records of earlier runs may have been dropped or dead-lettered.
func TestSummaryOfNothing(t *testing.T) {
	s := engine.Status{Routes: []status.Route{{Pipeline: "p", Name: "main", Health: "finished"}}}
	if got := summary(s, nil); !strings.HasPrefix(got, "nothing new was read\n") {
		t.Errorf("%q", got)
	}
	s.Routes[0].SourceCounters = map[string]int64{"files_vanished": 1}
	want := "nothing new was read\np/main, met by : files_vanished 1\n"
	if got := summary(s, nil); !strings.HasPrefix(got, want) {
		t.Errorf("with a missing file: %q, want %q", got, want)
	}
	s.Routes[0].SourceCounters = nil
	s.Reload = &status.Reload{Count: 1}
	const reloaded = "nothing new was read since the last reload\n"
	if got := summary(s, nil); !strings.HasPrefix(got, reloaded) {
		t.Errorf("after a reload: %q, want %q", got, reloaded)
	}
}
