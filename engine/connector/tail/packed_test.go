package tail_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-io/penstock/engine/connector/tail"
	"github.com/penstock-io/penstock/stream"
)

// pack compresses the content of one file (from) and appends it to another one (to), in the format
// of the second file's extension. The first file stays unchanged.
func (w *writer) pack(from, to string, flag int) {
	w.t.Helper()
	in, err := os.Open(w.path(from))
	w.must(err)
	out, err := os.OpenFile(w.path(to), os.O_WRONLY|os.O_CREATE|flag, 0o644)
	w.must(err)
	var z io.WriteCloser = gzip.NewWriter(out)
	if strings.HasSuffix(to, ".zst") {
		z, err = zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
		w.must(err)
	}
	_, err = io.Copy(z, in)
	w.must(err)
	w.must(z.Close())
	w.must(in.Close())
	w.must(out.Close())
	w.touch(to)
}

// half truncates a file to percent of its size and returns the rest.
func (w *writer) half(name string, percent int64) []byte {
	w.t.Helper()
	all, err := os.ReadFile(w.path(name))
	w.must(err)
	n := int64(len(all)) * percent / 100
	w.must(os.Truncate(w.path(name), n))
	w.touch(name)
	return all[n:]
}

func pack(from, to string) func(*writer) {
	return func(w *writer) { w.pack(from, to, os.O_EXCL) }
}

// packCases returns the cases of compressed files, including files that a rotation compresses.
func packCases() []rotation {
	var out []rotation
	for _, ext := range []string{".gz", ".zst"} {
		out = append(out, packCasesOf(ext)...)
	}
	return out
}

func packCasesOf(ext string) []rotation {
	gz := func(name string) func(*writer) { return both(pack(name, name+ext), rm(name)) }
	turn := both(mv("a.log", "a.log.1"), add("a.log", 3))
	inner := []rotation{
		{name: "compressed and deleted", steps: do(add("a.log", 3), turn, gz("a.log.1"), add("a.log", 2))},
		{name: "compressed at once",
			steps: do(add("a.log", 3), both(add("a.log", 4), turn, gz("a.log.1")), add("a.log", 2))},
		{name: "compressed before it was read to its end", wide: 100, steps: do(
			add("a.log", 60), both(add("a.log", 90), turn, gz("a.log.1")), add("a.log", 2))},
		{name: "compressed, a while before the other is deleted", steps: do(
			add("a.log", 3), turn, pack("a.log.1", "a.log.1"+ext), rm("a.log.1"), add("a.log", 1))},
		{name: "compressed in two halves, a while between", wide: 50, steps: do(
			add("a.log", 30), turn, func(w *writer) {
				w.pack("a.log.1", "a.log.1"+ext, os.O_EXCL)
				w.rest = w.half("a.log.1"+ext, 60)
			}, both(func(w *writer) {
				w.put("a.log.1"+ext, string(w.rest), os.O_APPEND)
			}, rm("a.log.1")), add("a.log", 1))},
		{name: "compressed copytruncate", steps: do(
			add("a.log", 3), both(cp("a.log", "a.log.1"), cut("a.log")),
			both(gz("a.log.1"), add("a.log", 2)), add("a.log", 1))},
		{name: "a chain of compressed files", steps: do(
			add("a.log", 3), both(turn, gz("a.log.1")),
			both(mv("a.log.1"+ext, "a.log.2"+ext), turn, gz("a.log.1")), add("a.log", 1))},
	}
	for i := range inner { // the same with the compressed names out of the glob
		c := inner[i]
		c.name, c.glob, c.skip = c.name+", out of the glob", "a.log", neverSeen
		if c.name != "a chain of compressed files, out of the glob" {
			inner = append(inner, c)
		}
	}
	inner = append(inner,
		rotation{name: "compressed from the beginning",
			steps: do(both(add("x", 40), gz2("x", "old.log"+ext)), add("a.log", 1))},
		rotation{name: "members are added", steps: do(
			both(add("x", 4), gz2("x", "a.log"+ext)), both(add("x", 3), gz2("x", "a.log"+ext)),
			both(add("x", 3), gz2("x", "a.log"+ext)))},
		rotation{waits: true, name: "a line across members, and none at the end", steps: do(
			func(w *writer) {
				w.text("x", "one\ntw", "one")
				gz2("x", "a.log"+ext)(w)
				w.text("x", "o\nthree")
				gz2("x", "a.log"+ext)(w)
			},
			func(w *writer) { w.ledger = append(w.ledger, "two", "three") })},
		rotation{name: "equal content of unrelated names", steps: do(
			both(func(w *writer) {
				w.text("x.log", "equal\n", "equal")
			}, func(w *writer) { w.text("x", "equal\n", "equal") },
				gz2("x", "y.log"+ext)), add("x.log", 1))},
		rotation{name: "decompressed again", steps: do(
			// if it were ever named a.log.1, both would exist, and be two files
			both(add("hidden", 5), pack("hidden", "a.log.1"+ext)),
			both(mv("hidden", "a.log.1"), rm("a.log.1"+ext)),
			add("a.log.1", 1)), skip: neverSeen},
	)
	for i := range inner {
		inner[i].name += " " + ext
	}
	return inner
}

// gz2 compresses a file and moves it to the end of another.
func gz2(from, to string) func(*writer) {
	return both(func(w *writer) { w.pack(from, to, os.O_APPEND) }, rm(from))
}

// TestDamagedFile checks that the data before the damage in a file is delivered, that the damage is
// reported once, and that other files are not delayed. Reading continues when an undamaged copy
// replaces the file.
func TestDamagedFile(t *testing.T) {
	change := func(o *tail.Options) { o.Include, o.Exclude = []string{"*.log*"}, nil }
	bubble(t, change, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, time.Now())
		w.append("x", 20_000)
		w.pack("x", "a.log.gz", os.O_EXCL)
		w.remove("x")
		sound, err := os.ReadFile(w.path("a.log.gz"))
		w.must(err)
		w.half("a.log.gz", 50)
		w.append("b.log", 3)
		p.start(false)
		p.pump(20 * time.Second)
		n := len(p.exact)
		if n < 5000 || n > 15_000 || strings.Count(p.host.Logged(), "cannot be read to its end") != 1 {
			t.Errorf("%d lines; the log:\n%s", n, p.host.Logged())
		}
		p.kill()
		p.start(false)
		p.pump(5 * time.Second)
		if len(p.exact) != n {
			t.Errorf("%d lines after a restart, before %d", len(p.exact), n)
		}
		w.must(os.WriteFile(w.path("a.log.gz"), sound, 0o644))
		p.pump(5 * time.Second)
		p.want(w.ledger...)
	})
}

// TestDamagedFileOfSeveralRoutes checks that each route gets the data before the damage in a file.
// It must not matter whether another route or an earlier reader of the route has met the damage.
// The damage is reported once. If the file is deleted, it stays open until all routes have met the
// damage.
func TestDamagedFileOfSeveralRoutes(t *testing.T) {
	change := func(o *tail.Options) { o.Include, o.Exclude = []string{"*.log*"}, nil }
	// damaged returns a source with a file that is truncated in the middle. The first route has
	// read the file up to the truncation.
	damaged := func(t *testing.T, p *fixture) (w *writer, n int) {
		w = newWriter(t, p.dir, time.Now())
		w.append("x", 20_000)
		w.pack("x", "a.log.gz", os.O_EXCL)
		w.remove("x")
		w.half("a.log.gz", 50)
		p.start(false)
		p.pump(20 * time.Second)
		if n = len(p.exact) + len(p.lines); n < 5000 {
			t.Fatalf("%d lines; the log:\n%s", n, p.host.Logged())
		}
		return w, n
	}
	check := func(t *testing.T, p *fixture, n int) {
		t.Helper()
		if len(p.exact) != n || strings.Count(p.host.Logged(), "cannot be read to its end") != 1 {
			t.Errorf("%d lines, want %d; the log:\n%s", len(p.exact), n, p.host.Logged())
		}
	}
	t.Run("a route that starts later", func(t *testing.T) {
		bubble(t, change, func(t *testing.T, p *fixture) {
			_, n := damaged(t, p)
			second := p.withSecond()
			p.setRoutes()
			second.open(p.source, false)
			p.pump(20 * time.Second)
			check(t, p, n)
			check(t, second, n)
		})
	})
	t.Run("a route that restarts with unsaved records", func(t *testing.T) {
		bubble(t, change, func(t *testing.T, p *fixture) {
			p.lag = time.Hour
			_, n := damaged(t, p)
			p.close()
			p.reopen()
			p.lag = time.Second
			p.pump(20 * time.Second)
			check(t, p, n)
		})
	})
	t.Run("a slower route, and the file is deleted", func(t *testing.T) {
		bubble(t, change, func(t *testing.T, p *fixture) {
			second := p.withSecond()
			p.start(false)
			second.limits.Bytes = 1 << 10 // the first route meets the damage long before
			w := newWriter(t, p.dir, time.Now())
			w.append("x", 20_000)
			w.pack("x", "a.log.gz", os.O_EXCL)
			w.remove("x")
			w.half("a.log.gz", 50)
			for len(p.exact)+len(p.lines) == 0 {
				if err := p.step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.remove("a.log.gz")
			p.pump(time.Minute)
			if n := len(p.exact); n < 5000 || len(second.exact) != n ||
				strings.Count(p.host.Logged(), "is gone before it was read to its end") != 1 {
				t.Errorf("%d and %d lines; the log:\n%s", n, len(second.exact), p.host.Logged())
			}
		})
	})
}

// TestEmptyCompressedFile checks that an empty compressed file causes no work, and that data
// written to it later is read.
func TestEmptyCompressedFile(t *testing.T) {
	change := func(o *tail.Options) { o.Include, o.Exclude = []string{"*.log*"}, nil }
	bubble(t, change, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, time.Now())
		w.text("x", "")
		w.pack("x", "a.log.gz", os.O_EXCL)
		begun := time.Now()
		p.start(true)
		if p.pump(time.Minute); p.failed != io.EOF || time.Since(begun) > 5*time.Second {
			t.Errorf("the run took %v and ended with %v", time.Since(begun), p.failed)
		}
		p.failed = nil
		p.kill()
		p.start(false)
		p.pump(5 * time.Second)
		w.append("x", 3)
		w.pack("x", "a.log.gz", os.O_APPEND)
		p.pump(5 * time.Second)
		p.want(w.ledger...)
	})
}

// TestEmptyCompressedFileIsDeleted checks that an empty compressed file has no bytes to read, and
// that its deletion does not count as a loss.
func TestEmptyCompressedFileIsDeleted(t *testing.T) {
	change := func(o *tail.Options) { o.Include, o.Exclude = []string{"*.log*"}, nil }
	bubble(t, change, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, time.Now())
		w.text("x", "")
		w.pack("x", "a.log.1.gz", os.O_EXCL)
		p.start(false)
		p.pump(5 * time.Second)
		if n := p.reader.(stream.Estimator).Remaining(); n != 0 {
			t.Errorf("%d bytes remain", n)
		}
		w.rename("a.log.1.gz", "a.log.2.gz")
		p.pump(5 * time.Second)
		w.remove("a.log.2.gz")
		p.pump(time.Minute)
		if n := p.host.Counted("files_vanished"); n != 0 {
			t.Errorf("files_vanished is %d; the log:\n%s", n, p.host.Logged())
		}
	})
}

// TestSmallCompressedFileIsDeleted checks a compressed file that an earlier run has read
// completely. Its deletion must not count as a loss, even if its content is shorter than the file.
func TestSmallCompressedFileIsDeleted(t *testing.T) {
	change := func(o *tail.Options) { o.Include, o.Exclude = []string{"*.log*"}, nil }
	bubble(t, change, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, time.Now())
		w.text("x", "x\n", "x")
		w.pack("x", "a.log.1.gz", os.O_EXCL)
		p.start(false)
		p.pump(5 * time.Second)
		p.want("x")
		p.kill()
		w.rename("a.log.1.gz", "a.log.2.gz")
		p.start(false)
		p.pump(5 * time.Second)
		w.remove("a.log.2.gz")
		p.pump(time.Minute)
		p.want("x")
		if n := p.host.Counted("files_vanished"); n != 0 {
			t.Errorf("files_vanished is %d; the log:\n%s", n, p.host.Logged())
		}
	})
}

// TestAnotherRouteReadsARenamedCompressedFile checks a compressed file of an earlier run that was
// renamed while the process was down. A route that replaces the only route reads the lines of the
// file, and not its compressed bytes.
func TestAnotherRouteReadsARenamedCompressedFile(t *testing.T) {
	change := func(o *tail.Options) { o.Include, o.Exclude = []string{"*.log*"}, nil }
	bubble(t, change, func(t *testing.T, p *fixture) {
		w := newWriter(t, p.dir, time.Now())
		line := strings.Repeat("x", 100)
		w.text("x", line+"\n", line)
		w.pack("x", "a.log.1.gz", os.O_EXCL)
		w.remove("x")
		data, err := os.ReadFile(w.path("a.log.1.gz"))
		w.must(err)
		if bytes.Contains(data, []byte("\n")) {
			t.Fatalf("the compressed data %q has a line end", data)
		}
		p.start(false)
		p.pump(5 * time.Second)
		p.want(w.ledger...)
		p.kill()
		w.rename("a.log.1.gz", "a.log.2.gz")
		p.start(false)
		p.pump(5 * time.Second)
		p.close()
		next := p.withSecond()
		p.host.SetRoutes(next.route)
		stall(3 * time.Second)
		next.open(p.source, false)
		next.pump(20 * time.Second)
		next.want(w.ledger...)
	})
}
