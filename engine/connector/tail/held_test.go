package tail_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/tail"
	"github.com/penstock-io/penstock/stream"
)

// TestDeletedFilesCountOncePerSource checks that deleted unread files count once for the source,
// however many routes have to read them. The source logs when these files exceed half of
// deleted_max, and again when they exceed deleted_max. It reports the oldest of them, and a route
// that still has to read it.
func TestDeletedFilesCountOncePerSource(t *testing.T) {
	const size = 34 * 20
	var most stream.Size = size * 3 / 2
	bubble(t, func(o *tail.Options) { o.DeletedMax = most }, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, time.Now())
		p.withSecond()
		p.start(false)
		p.pump(time.Second)
		for n, want := range []string{
			fmt.Sprintf("files=1 bytes=%d deleted_max=%d oldest=%s", size, most, w.path("0.log")),
			fmt.Sprintf("files=2 bytes=%d deleted_max=%d oldest=%s", 2*size, most, w.path("0.log")),
		} {
			name := fmt.Sprintf("%d.log", n)
			w.append(name, 20)
			if info, err := os.Stat(w.path(name)); err != nil || info.Size() != size {
				t.Fatalf("%s: want %d bytes, have %v, %v", name, size, info, err)
			}
			stall(3 * time.Second)
			w.remove(name)
			stall(10 * time.Second)
			log := p.host.Logged()
			if got := strings.Count(log, "deleted files are held"); got != n+1 || !strings.Contains(log, want) {
				t.Errorf("logged %d times, want %d with %s; the log:\n%s", got, n+1, want, log)
			}
			held := p.source.(stream.Holder).Held()
			age := held.Age.Round(10 * time.Second)
			held.Age, held.Route = 0, strings.TrimSuffix(held.Route, "+") // both routes hold it
			if want := (stream.Held{Files: n + 1, Bytes: int64(n+1) * size, Oldest: w.path("0.log"),
				Route: "main"}); held != want {
				t.Errorf("held is %+v, want %+v", held, want)
			}
			if want := time.Duration(n+1) * 10 * time.Second; age != want {
				t.Errorf("the oldest is held for %v, want %v", age, want)
			}
			if got := p.host.Counted("deleted_over_budget"); got != int64(2*n) {
				t.Errorf("deleted_over_budget is %d, want %d for each of two routes", got, n)
			}
		}
		// of two files, for each of two routes
		if got := p.host.Counted("bytes_deleted_unread"); got != 4*size {
			t.Errorf("bytes_deleted_unread is %d, want %d", got, 4*size)
		}
		p.pump(2 * time.Minute)
		p.want(w.ledger...)
		p.second.want(w.ledger...)
		if held := p.source.(stream.Holder).Held(); held != (stream.Held{}) {
			t.Errorf("held is %+v after all was read", held)
		}
	})
}

// TestLostBytesAreCounted checks that data deleted before it was read is counted in bytes and
// reported once for each file.
func TestLostBytesAreCounted(t *testing.T) {
	for name, lose := range map[string]func(w *writer){
		"truncated":   func(w *writer) { w.truncate("a.log") },
		"rewritten":   func(w *writer) { w.text("b.log", ""); w.rewrite("a.log", 1) },
		"over budget": func(w *writer) { w.remove("a.log") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(o *tail.Options) {
				o.DeletedMax, o.DeletedBeyond = 100, "drop"
			}, func(t *testing.T, p *fixture) {
				w := newWriter(t, p.dir, time.Now())
				w.append("a.log", 3)
				p.start(false)
				p.pump(3 * time.Second)
				w.append("a.log", 20)
				stall(3 * time.Second)
				w.disown(20)
				lose(w)
				stall(3 * time.Second)
				p.pump(2 * time.Minute)
				p.want(w.ledger...)
				if got := p.host.Counted("bytes_vanished"); got != 34*20 {
					t.Errorf("bytes_vanished is %d, want %d; the log:\n%s", got, 34*20, p.host.Logged())
				}
				if got := strings.Count(p.host.Logged(), "680 bytes are lost"); name != "over budget" && got != 1 {
					t.Errorf("reported %d times; the log:\n%s", got, p.host.Logged())
				}
			})
		})
	}
}

// TestLostCompressedBytesAreCounted deletes a compressed file before it was read to its end, and
// drops it because of deleted_max. The loss must be counted and reported once, in compressed bytes.
// This must hold even if another route has read the whole file.
func TestLostCompressedBytesAreCounted(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lines  int
		read   bool // a part of it, before it is deleted
		second bool // another route reads all of it
	}{
		{name: "small", lines: 20},
		{name: "large", lines: 20_000},
		{name: "large, partly read", lines: 20_000, read: true},
		{name: "small, read by one of two routes", lines: 20, second: true},
		{name: "large, read by one of two routes", lines: 20_000, second: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(o *tail.Options) {
				o.Include, o.Exclude = []string{"*.log*"}, nil
				o.DeletedMax, o.DeletedBeyond = 10, "drop"
			}, func(t *testing.T, p *fixture) {
				w := newWriter(t, p.dir, time.Now())
				if tt.second {
					p.withSecond()
				}
				p.limits = stream.BatchLimits{Bytes: 400_000} // more than the compressed size
				p.start(false)
				p.pump(3 * time.Second)
				w.append("x", tt.lines)
				w.pack("x", "a.log.gz", os.O_EXCL)
				w.remove("x")
				info, err := os.Stat(w.path("a.log.gz"))
				w.must(err)
				size := info.Size()
				stall(3 * time.Second)
				if tt.read {
					w.must(p.step(t.Context()))
				}
				if tt.second {
					p.second.pump(3 * time.Second)
				}
				w.remove("a.log.gz")
				stall(3 * time.Second)
				p.pump(2 * time.Minute)
				if got := p.host.Counted("files_vanished"); got != 1 {
					t.Errorf("files_vanished is %d", got)
				}
				if got := p.host.Counted("bytes_vanished"); got < 1 || got > size {
					t.Errorf("bytes_vanished is %d, want 1 to %d", got, size)
				}
				if got := p.host.Counted("files_deleted_unread"); got != 1 {
					t.Errorf("files_deleted_unread is %d", got)
				}
				log := p.host.Logged()
				if got := strings.Count(log, "is gone before it was read to its end"); got != 1 {
					t.Errorf("reported %d times; the log:\n%s", got, log)
				}
			})
		})
	}
}

// TestCompressedFileReleasesDeletedOne checks that a deleted unread file is closed when a
// compressed file holds its data. The data is then read from the compressed file, even if that file
// is renamed or deleted before the route reads.
func TestCompressedFileReleasesDeletedOne(t *testing.T) {
	later := map[string]func(w *writer){
		"stays":   func(*writer) {},
		"renamed": func(w *writer) { w.rename("a.log.1.gz", "a.log.2.gz") },
		"deleted": func(w *writer) { w.remove("a.log.1.gz") },
	}
	for name, exclude := range map[string][]string{"listed": nil, "excluded": {"*.gz"}} {
		for step, change := range later {
			for _, read := range []int{0, 5} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, step, read), func(t *testing.T) {
					set := func(o *tail.Options) { o.Include, o.Exclude = []string{"*.log*"}, exclude }
					bubble(t, set, func(t *testing.T, p *fixture) {
						w := newWriter(t, p.dir, time.Now())
						p.withSecond()
						w.append("a.log", read)
						p.start(false)
						p.pump(3 * time.Second)
						w.append("a.log", 20)
						stall(3 * time.Second)
						w.rename("a.log", "a.log.1")
						w.text("a.log", "")
						stall(3 * time.Second)
						w.pack("a.log.1", "a.log.1.gz", os.O_EXCL)
						w.remove("a.log.1")
						stall(3 * time.Second)
						if held := p.source.(stream.Holder).Held(); exclude != nil && held.Files != 1 {
							t.Errorf("held is %+v at first, want the deleted file", held)
						}
						stall(20 * time.Second)
						if held := p.source.(stream.Holder).Held(); held.Files != 0 {
							t.Errorf("held is %+v, want nothing", held)
						}
						change(w)
						stall(20 * time.Second)
						p.pump(2 * time.Minute)
						p.want(w.ledger...)
						p.second.want(w.ledger...)
						if n := p.host.Counted("files_vanished"); n != 0 {
							t.Errorf("files_vanished is %d; the log:\n%s", n, p.host.Logged())
						}
					})
				})
			}
		}
	}
}

// TestDeletedFileAtStop checks that a process that stops reports the undelivered data of a deleted
// file, since the next process cannot read it.
func TestDeletedFileAtStop(t *testing.T) {
	const size = 34 * 20
	remove := func(w *writer) { w.remove("a.log") }
	for name, c := range map[string]struct {
		gone func(w *writer)
		read time.Duration // before the file is gone
		lag  time.Duration // until progress is saved
		want int64
	}{
		"unread":              {remove, 0, time.Second, size},
		"read, not delivered": {remove, 3 * time.Second, time.Hour, size},
		"delivered":           {remove, 3 * time.Second, time.Second, 0},
		"renamed":             {func(w *writer) { w.rename("a.log", "other") }, 0, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, p *fixture) {
				w := newWriter(t, p.dir, time.Now())
				w.append("a.log", 3)
				p.start(false)
				p.pump(3 * time.Second)
				p.lag = c.lag
				w.append("a.log", 20)
				stall(3 * time.Second)
				p.pump(c.read)
				c.gone(w)
				stall(10 * time.Second)
				p.kill()
				if got := p.host.Counted("bytes_vanished"); got != c.want {
					t.Errorf("bytes_vanished is %d, want %d; the log:\n%s", got, c.want, p.host.Logged())
				}
				if got := strings.Count(p.host.Logged(), "680 bytes are lost"); int64(got) != c.want/size {
					t.Errorf("reported %d times; the log:\n%s", got, p.host.Logged())
				}
			})
		})
	}
}

// TestPositionOfLostFileExpires checks a process that stops before it has read all of a deleted
// file. The loss is reported once. The position expires when the next process has waited for a
// copy.
func TestPositionOfLostFileExpires(t *testing.T) {
	for _, start := range []string{"beginning", "end"} {
		t.Run(start, func(t *testing.T) {
			bubble(t, func(o *tail.Options) { o.Start = start }, func(t *testing.T, p *fixture) {
				w := newWriter(t, p.dir, time.Now())
				p.start(false)
				p.pump(3 * time.Second)
				w.append("a.log", 3)
				p.pump(3 * time.Second)
				w.append("a.log", 20)
				stall(3 * time.Second)
				w.remove("a.log")
				stall(10 * time.Second)
				p.kill()
				lost := p.host.Counted("bytes_vanished")
				p.start(false)
				p.pump(5 * time.Second) // shorter than copy_wait
				before := len(p.saved)
				p.pump(time.Minute)
				if after := len(p.saved); before != 1 || after != 0 {
					t.Errorf("%d positions before copy_wait and %d after it, want 1 and 0", before,
						after)
				}
				if again := p.host.Counted("bytes_vanished"); lost != 680 || again != lost {
					t.Errorf("%d bytes are lost at the stop, and %d in all; want 680", lost, again)
				}
			})
		})
	}
}
