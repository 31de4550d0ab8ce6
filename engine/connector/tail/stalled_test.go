package tail_test

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/tail"
)

// outage is one way to rotate while a receiver is down for longer than several rotations.
type outage struct {
	name   string
	glob   string // "" means *.log*, and the default excludes
	rotate func(w *writer, n int)
}

// logrotate returns a function that rotates a.log and keeps three rotated files. first makes
// a.log.1 from a.log. pack is the extension of the compressed rotated files, or "" if they are not
// compressed.
func logrotate(pack string, first func(w *writer)) func(w *writer, n int) {
	return func(w *writer, n int) {
		const keep = 3
		for k := keep; k > 0; k-- {
			from := fmt.Sprintf("a.log.%d%s", k, pack)
			switch _, err := os.Stat(w.path(from)); {
			case err != nil:
			case k == keep:
				w.remove(from)
			default:
				w.rename(from, fmt.Sprintf("a.log.%d%s", k+1, pack))
			}
		}
		first(w)
		if pack != "" {
			w.pack("a.log.1", "a.log.1"+pack, os.O_EXCL)
			w.remove("a.log.1")
		}
	}
}

func created(w *writer)   { w.rename("a.log", "a.log.1"); w.text("a.log", "") }
func truncated(w *writer) { w.copy("a.log", "a.log.1"); w.truncate("a.log") }

var outages = []outage{
	{name: "create, compress", rotate: logrotate(".gz", created)},
	{name: "create, compress, all included", glob: "*.log* *.gz", rotate: logrotate(".gz", created)},
	{name: "create, compress, rotated names not included", glob: "a.log", rotate: logrotate(".gz", created)},
	{name: "create, few kept", rotate: logrotate("", created)},
	{name: "create, rotate 1", rotate: func(w *writer, _ int) { _ = os.Remove(w.path("a.log.1")); created(w) }},
	{name: "deleted", rotate: func(w *writer, _ int) { w.remove("a.log") }},
	{name: "copytruncate, compress", rotate: logrotate(".gz", truncated)},
	{name: "copytruncate, compress, rotated names not included", glob: "a.log", rotate: logrotate(".gz", truncated)},
	{name: "by date, compress", rotate: func(w *writer, n int) {
		to := fmt.Sprintf("a.log-202611%02d", n)
		w.rename("a.log", to)
		w.pack(to, to+".gz", os.O_EXCL)
		w.remove(to)
	}},
}

// options sets the limits of a tail for these tests.
func (o outage) options(to *tail.Options) {
	to.Include = []string{"*.log*"}
	if o.glob == "a.log" {
		to.Include = []string{"a.log"}
	} else if o.glob != "" {
		to.Exclude = nil
	}
	to.GoneWait = 20 * time.Second
}

// TestRotationsWhileRouteIsStalled checks that a receiver that is down during several rotations
// loses nothing. Files are found and held open even if the route does not read, restarts meanwhile,
// or has not read anything yet.
func TestRotationsWhileRouteIsStalled(t *testing.T) {
	for _, o := range outages {
		for _, how := range []string{"stalled", "restarted", "from the start", "not open yet"} {
			for routes := 1; routes <= 3; routes++ {
				t.Run(fmt.Sprintf("%s/%s/%d", o.name, how, routes), func(t *testing.T) {
					t.Parallel()
					dir, base := t.TempDir(), time.Now().Add(time.Hour)
					synctest.Test(t, func(t *testing.T) { o.run(t, dir, base, how, routes) })
				})
			}
		}
	}
}

func (o outage) run(t *testing.T, dir string, base time.Time, how string, routes int) {
	w := newWriter(t, dir, base)
	defer w.close()
	p := newFixture(t, dir, o.options)
	defer p.kill()
	for m := p; routes > 1; routes-- {
		m = m.withSecond()
	}
	p.limits.Bytes = 256
	w.append("a.log", 5)
	switch how {
	case "not open yet":
		p.begin()
	case "from the start":
		p.start(false)
	default:
		p.start(false)
		p.pump(5 * time.Second)
	}
	const rotations = 5
	for n := range rotations {
		w.append("a.log", 20)
		stall(5 * time.Second)
		if n == 2 && how == "restarted" {
			p.close()
			stall(time.Second)
		}
		o.rotate(w, n)
		if n == 3 && how == "restarted" {
			p.reopen()
		}
		stall(5 * time.Second)
	}
	w.append("a.log", 3)
	if how == "not open yet" {
		p.reopen()
	}
	p.pump(2 * time.Minute)
	for m := p; m != nil; m = m.second {
		if m.failed != nil {
			t.Errorf("Read: %v", m.failed)
		}
		m.want(w.ledger...)
	}
}

// TestRestartBeforeDeletedFileIsSaved checks a route that has read a deleted file to its end, and
// restarts before any of it was delivered. The route must read the file again.
func TestRestartBeforeDeletedFileIsSaved(t *testing.T) {
	change := func(o *tail.Options) { o.GoneWait = 5 * time.Second }
	bubble(t, change, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, time.Now())
		p.start(false)
		p.pump(time.Second)
		w.append("a.log", 20)
		p.lag = time.Hour
		p.pump(time.Second)
		w.remove("a.log")
		p.pump(time.Minute) // the file is read to its end, and nothing is saved
		if len(p.lines) != 20 || len(p.exact) > 0 {
			t.Fatalf("%d lines were read, %d saved", len(p.lines), len(p.exact))
		}
		p.close()
		stall(10 * time.Second)
		p.reopen()
		p.lag = time.Second
		p.pump(time.Minute)
		p.want(w.ledger...)
		p.close()
		stall(10 * time.Second)
		p.reopen()
		p.pump(time.Minute)
		p.want(w.ledger...)
	})
}

// stall lets time pass in a synctest bubble while no route reads.
func stall(d time.Duration) { time.Sleep(d) }

// TestRewrittenFileBeforeRouteOpens checks that a file with the name and the first lines of a file
// of an earlier run is a new file. The same holds for a route that opens after the source has
// already found the file.
func TestRewrittenFileBeforeRouteOpens(t *testing.T) {
	base := time.Now().Add(time.Hour) // no file was changed before it was created
	bubble(t, nil, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, base)
		p.start(false)
		w.append("a.log", 2)
		p.pump(10 * time.Second)
		p.kill()
		for _, line := range w.ledger[:2] {
			w.text("tmp", line+"\n", line)
		}
		w.append("tmp", 1)
		w.rename("tmp", "a.log")
		p.begin()
		stall(10 * time.Second)
		p.reopen()
		p.pump(2 * time.Minute)
		p.want(w.ledger...)
	})
}
