package flow

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow/checkpoint"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// small returns a fixture in which one run of the program saves about twenty times.
func small(t *testing.T, name string, seed uint64) *bookFixture {
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newBookFixture(t, name, rnd, table(rnd, 130, 4))
	w.unruly = true
	w.o.Pack, w.o.Replay, w.o.Save = PackOptions[entryRow]{Rows: 4}, 30, 20*time.Millisecond
	w.o.Sender.Control.Seed = seed
	return w
}

// TestBookCrashesAtEverySettle crashes the program when its k-th batch (or piece of a batch)
// settles, for every k. It checks that the next run loses no row.
func TestBookCrashesAtEverySettle(t *testing.T) {
	lives := 0
	for over := false; !over; lives++ {
		synctest.Test(t, func(t *testing.T) {
			w := small(t, fmt.Sprint("settle ", lives+1), 7)
			if err := w.live(ending{settle: lives + 1}); err == nil {
				over = true
			} else if !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			w.mem = w.mem.Crash(vfstest.DataNone, vfstest.NamesNone, uint64(lives))
			w.finish()
		})
	}
	if lives < 40 {
		t.Errorf("%d lives: the workload has shrunk", lives)
	}
}

// wreck is the file system after a crash, and the expected state at that moment.
type wreck struct {
	crash   vfstest.Crash
	fixture *bookFixture
}

// TestBookCrashesAtEveryCall crashes after each call of the file system that may have changed
// something. Each crash keeps all, none or some of the unsynced data. The test checks that the next
// run loses no row, and repeats no more than the bound.
func TestBookCrashesAtEveryCall(t *testing.T) {
	resumed := 0
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			var wrecks []wreck
			w := small(t, fmt.Sprint("seed ", seed), seed)
			w.mem.Watch(func(c vfstest.Call) {
				for i, data := range []vfstest.Data{vfstest.DataAll, vfstest.DataNone,
					vfstest.DataTorn} {
					names := []vfstest.Names{vfstest.NamesAll, vfstest.NamesNone,
						vfstest.NamesSome}[i]
					left := vfstest.Crash{FS: w.mem.Crash(data, names, seed+uint64(c.N)), Call: c,
						Data: data, Names: names, Seed: seed}
					wrecks = append(wrecks, wreck{left, w.copy(left)})
				}
			})
			if err := w.live(ending{}); err != nil {
				t.Fatal(err)
			}
			w.mem.Watch(nil)
			for _, wr := range wrecks {
				resumed++
				wr.fixture.finish()
			}
		})
	}
	if resumed < 500 {
		t.Errorf("%d crashes: the workload has shrunk", resumed)
	}
}

// copy copies the fixture, with the file system left by a crash.
func (w *bookFixture) copy(left vfstest.Crash) *bookFixture {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := newBookFixture(w.t, w.name+", "+left.String(),
		rand.New(rand.NewPCG(uint64(left.Call.N), 2)),
		w.rows)
	c.mem, c.o, c.unruly = left.FS, w.o, w.unruly
	c.had, c.life = maps.Clone(w.had), maps.Clone(w.life)
	c.watermark, c.above = w.watermark, slices.Clone(w.above)
	return c
}

// childKey is the environment variable that makes a test process the program that TestBookKilled
// kills.
const childKey = "PENSTOCK_BOOK_CHILD"

const childRows, childReplay = 8000, 300 // too many rows for all killed runs together

// TestBookChild is the program that TestBookKilled kills: eight workers deliver rows to its
// standard output, which is durable.
func TestBookChild(t *testing.T) {
	path := os.Getenv(childKey)
	if path == "" {
		return // this process was not started by TestBookKilled
	}
	file, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := BookOptions[int64]{
		Checkpoint: file, At: numRow, Pack: PackOptions[int64]{Rows: 10}, Replay: childReplay,
		Save: 5 * time.Millisecond,
	}
	for i := range 8 {
		o.Sender.Lanes = append(o.Sender.Lanes, Lane[[]int64]{
			Name: fmt.Sprint("worker ", i),
			Worker: WorkerFunc[[]int64](func(_ context.Context, a Attempt[[]int64]) (Report,
				error) {
				line := fmt.Sprintln(append([]any{"rows"}, a.Value[0], a.Value[len(a.Value)-1])...)
				_, err := os.Stdout.WriteString(line) // one write: a pipe takes it whole
				return Report{}, err
			}),
		})
	}
	b, err := OpenBook(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	watermark, _ := b.Progress()
	at := watermark.Num
	if err := b.Run(t.Context(), func(context.Context) (int64, error) {
		if at == childRows {
			return 0, io.EOF
		}
		at++
		return at, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestBookKilled kills a real process with SIGKILL, at a different place each time, until the last
// run delivers all rows. It checks that no row is lost and that repeats stay within the bound.
func TestBookKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a process for each kill")
	}
	path := filepath.Join(t.TempDir(), "mark")
	had := make([]int, childRows+1)
	const kills = 12
	for kill := range kills + 1 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBookChild$",
			"-test.timeout=1m")
		child.Env = append(os.Environ(), childKey+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		after := 25 + 3*kill // batches
		if kill == kills {
			after = -1
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var first, last int
			if n, _ := fmt.Sscanf(lines.Text(), "rows %d %d", &first, &last); n != 2 {
				continue // output of the testing package
			}
			for row := first; row <= last; row++ {
				had[row]++
			}
			if after--; after == 0 {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := child.Wait(); (err == nil) != (kill == kills) {
			t.Fatalf("life %d ended with %v", kill, err)
		}
	}
	again := 0
	for row, n := range had[1:] {
		if n == 0 {
			t.Fatalf("row %d is lost", row+1)
		}
		again += n - 1
	}
	if again > kills*childReplay {
		t.Errorf("%d rows came again after %d kills; the bound is %d for each", again, kills,
			childReplay)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), fmt.Sprintf("penstock-mark 1\nwatermark "+
		"%d\ncrc32c ", childRows)) {
		t.Errorf("the last mark is %q, %v", text, err)
	}
	t.Logf("%d rows, %d kills, %d came again", childRows, kills, again)
}
