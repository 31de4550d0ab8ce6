package endtoend

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/status"
)

const (
	loadStep  = 50 * time.Millisecond // between two writes of lines
	loadLines = 50                    // of one write: 1,000 a second
	loadPhase = 20 * time.Second      // without reloads, before
	// loadWithin is the time in which every unchanged route must deliver a line that was written.
	// So a route may lag behind by at most the lines that are written in this time.
	loadWithin = time.Second
)

// reloadLoad is a run of TestReloadLoad.
type reloadLoad struct {
	t       *testing.T
	bin     string
	dir     string
	address string
	in      string
	config  string
	lines   int // written
	version int
}

// phase is the result of one phase, over the unchanged routes and all of its samples.
type phase struct {
	offered, delivered int64 // records in the phase; delivered is that of the slowest route
	lag                int64 // largest, in records
	quiet              float64
	reloads            int
	took               time.Duration
}

// TestReloadLoad reloads a config while 1,000 lines a second arrive for ten routes into SQLite. It
// reloads PENSTOCK_RELOADS times, 100 times a minute, and each time route c is changed. The nine
// unchanged routes must not restart or deliver a line again, and must never lag behind by more than
// the lines of a second. Every line must be in every table once.
func TestReloadLoad(t *testing.T) {
	text := os.Getenv("PENSTOCK_RELOADS")
	if text == "" {
		t.Skip("skipped: `make reloads` sets PENSTOCK_RELOADS; TestReload is the short form")
	}
	reloads, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	l := &reloadLoad{t: t, bin: bin, dir: t.TempDir(), address: connectortest.FreeAddress(t)}
	log, err := os.Create(filepath.Join(l.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l.in = filepath.Join(l.dir, "in", "a.log")
	write(t, l.in, "")
	l.config = reloadable(t, l.dir, l.address, 0)
	d := launch(t, log, bin, "run", l.config)
	eventually(t, "it runs",
		func() bool { return len(l.picture().Routes) == len(reloadableRoutes) })

	every := time.Minute / 100
	before := l.phase(loadPhase, 0)
	during := l.phase(time.Duration(reloads)*every, every)
	for name, p := range map[string]phase{"without reloads": before, "with reloads": during} {
		t.Logf("%s: %d reloads in %v, %d lines written, %d delivered by the slowest unchanged "+
			"route, largest lag %d lines, longest time without progress %.0f ms", name, p.reloads,
			p.took.Round(time.Millisecond), p.offered, p.delivered, p.lag, 1000*p.quiet)
	}
	if bound := int64(loadLines * (loadWithin / loadStep)); during.lag > bound {
		t.Errorf("an unchanged route lagged by %d lines, more than the %d of a second",
			during.lag, bound)
	}
	l.finish(during)
	d.signal(syscall.SIGTERM)
	if code := d.exit(20 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// picture returns the status of the program, or an empty one if the program cannot be reached.
func (l *reloadLoad) picture() *status.Status {
	s, err := admin.Ask(l.t.Context(), l.address, "")
	if err != nil {
		return &status.Status{}
	}
	return s
}

// unchangedRoutes returns the smallest number of lines that an unchanged route has delivered. quiet
// is the longest time for which an unchanged route that has data has made no progress.
func unchangedRoutes(s *status.Status) (least int64, quiet float64) {
	for i, r := range s.Routes[:len(reloadableRoutes)-1] {
		if i == 0 || r.Delivered < least {
			least = r.Delivered
		}
		quiet = max(quiet, r.QuietSeconds)
	}
	return least, quiet
}

// phase writes lines at a steady rate for the given length of time. It changes route c and reloads
// the config at regular intervals. The parameter every is the length of an interval. If it is zero,
// phase does not reload.
func (l *reloadLoad) phase(length, every time.Duration) (p phase) {
	begun, ticker := time.Now(), time.NewTicker(loadStep)
	defer ticker.Stop()
	first, _ := unchangedRoutes(l.picture())
	written, next := l.lines, every
	done := make(chan error, 1)
	running := false
	more := func() bool { return every > 0 && next <= length } // reloads to begin
	for time.Since(begun) < length || running || more() {
		<-ticker.C
		// The lag is measured before the next write, so that the lines of the previous write had
		// the time of one step to arrive.
		at := l.lines
		if s := l.picture(); len(s.Routes) == len(reloadableRoutes) {
			least, quiet := unchangedRoutes(s)
			p.lag, p.quiet = max(p.lag, int64(at)-least), max(p.quiet, quiet)
		}
		appendLines(l.t, l.in, l.lines+1, l.lines+loadLines)
		l.lines += loadLines
		select {
		case err := <-done:
			if running = false; err != nil {
				l.t.Fatalf("reload %d: %v", l.version, err)
			}
			p.reloads++
		default:
		}
		if !running && more() && time.Since(begun) >= next {
			next += every
			l.version++
			reloadable(l.t, l.dir, l.address, l.version)
			running = true
			go func() { done <- exec.Command(l.bin, "reload", l.config).Run() }()
		}
	}
	p.took = time.Since(begun)
	p.offered = int64(l.lines - written)
	last, _ := unchangedRoutes(l.picture())
	p.delivered = last - first
	return p
}

// finish waits for all lines and compares counters and tables.
func (l *reloadLoad) finish(during phase) {
	t, last := l.t, len(reloadableRoutes)-1
	eventually(t, "everything is delivered", func() bool {
		s := l.picture()
		if len(s.Routes) <= last {
			return false
		}
		least, _ := unchangedRoutes(s)
		c := s.Routes[last]
		return least == int64(l.lines) && c.InFlight+c.Waiting == 0 &&
			countRows(t, filepath.Join(l.dir, "c.db")) == l.lines
	})
	s := l.picture()
	if s.Reload == nil || s.Reload.Count != l.version || s.Reload.Failed != 0 ||
		during.reloads != l.version {
		t.Errorf("%d of %d reloads: %+v", during.reloads, l.version, s.Reload)
	}
	var lost []string
	for _, r := range s.Routes[:last] {
		if r.Starts != 1 || r.Redelivered != 0 {
			lost = append(lost, r.Name)
		}
	}
	if len(lost) > 0 {
		t.Errorf("these unchanged routes restarted or redelivered: %s", strings.Join(lost, " "))
	}
	for _, name := range reloadableRoutes {
		if n := countRows(t, filepath.Join(l.dir, name+".db")); n != l.lines {
			t.Errorf("table %s has %d distinct lines, want %d", name, n, l.lines)
		}
	}
	t.Logf("%d lines are in each of %d tables, once", l.lines, len(reloadableRoutes))
}
