package flow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// timed returns a source with one row for each duration in at. A row arrives when its duration has
// passed since start. After the last row the source returns the error end.
func timed(start time.Time, end error, at ...time.Duration) func(context.Context) (int, error) {
	n := 0
	return func(ctx context.Context) (int, error) {
		if n == len(at) {
			return 0, end
		}
		if err := sleep(ctx, at[n]-time.Since(start)); err != nil {
			return 0, ctx.Err()
		}
		n++
		return n, nil
	}
}

func mustPack[R any](t *testing.T, o PackOptions[R],
	next func(context.Context) (R, error)) Producer[[]R] {
	t.Helper()
	p, err := Pack(o, next)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPackRefuses(t *testing.T) {
	rows := func(context.Context) (int, error) { return 0, io.EOF }
	for _, o := range []PackOptions[int]{
		{Rows: -1}, {Rows: math.MaxInt}, {Cost: -1}, {Cost: math.NaN()}, {Cost: math.Inf(1)},
		{Linger: -1},
	} {
		if _, err := Pack(o, rows); err == nil {
			t.Errorf("Pack takes %+v", o)
		}
	}
	if _, err := Pack[int](PackOptions[int]{}, nil); err == nil {
		t.Error("Pack takes no rows at all")
	}
}

// TestPack checks that a batch ends at Rows, before the row that would exceed Cost, and where Cut
// reports true. A row of any cost is allowed in a batch of its own.
func TestPack(t *testing.T) {
	cost := func(n int) float64 { return float64(n) }
	for _, c := range []struct {
		name string
		o    PackOptions[int]
		rows []int
		want [][]int
	}{
		{"nothing", PackOptions[int]{}, nil, nil},
		{"count", PackOptions[int]{Rows: 2}, []int{1, 2, 3, 4, 5}, [][]int{{1, 2}, {3, 4}, {5}}},
		{"cost", PackOptions[int]{Cost: 5, CostOf: cost}, []int{1, 2, 3, 4, 9, 1, 5},
			[][]int{{1, 2}, {3}, {4}, {9}, {1}, {5}}},
		{"cost is 1 a row", PackOptions[int]{Cost: 2}, []int{7, 8, 9}, [][]int{{7, 8}, {9}}},
		{
			"cut", PackOptions[int]{Cut: func(last, next int) bool { return next != last+1 }},
			[]int{1, 2, 4, 5, 9}, [][]int{{1, 2}, {4, 5}, {9}},
		},
		{"all in one", PackOptions[int]{}, []int{1, 2, 3}, [][]int{{1, 2, 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := c.rows
			c.o.BytesOf = func(int) int64 { return 10 }
			p := mustPack(t, c.o, func(context.Context) (int, error) {
				if len(rows) == 0 {
					return 0, io.EOF
				}
				row := rows[0]
				rows = rows[1:]
				return row, nil
			})
			var got [][]int
			for {
				it, err := p.Next(t.Context())
				if err == io.EOF {
					break
				}
				if err != nil || it.Bytes != int64(10*len(it.Value)) {
					t.Fatalf("batch %+v, %v", it, err)
				}
				got = append(got, it.Value)
			}
			if !slices.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("batches %v, want %v", got, c.want)
			}
			if _, err := p.Next(t.Context()); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// TestPackLinger checks that a batch waits for more rows at most Linger after its first row, and
// that the wait for the first row has no limit.
func TestPackLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ms := time.Millisecond
		broken := errors.New("connection reset")
		next := timed(start, broken, 5*time.Second, 5*time.Second+40*ms, 5*time.Second+150*ms,
			9*time.Second, 9*time.Second+99*ms)
		p := mustPack(t, PackOptions[int]{Rows: 10, Linger: 100 * ms}, next)
		for _, want := range []struct {
			rows []int
			at   time.Duration
		}{
			{[]int{1, 2}, 5*time.Second + 100*ms},
			{[]int{3}, 5*time.Second + 250*ms},
			{[]int{4, 5}, 9*time.Second + 99*ms}, // the error comes after these rows
		} {
			it, err := p.Next(t.Context())
			if at := time.Since(start); err != nil || !slices.Equal(it.Value, want.rows) ||
				at != want.at {
				t.Errorf("after %v: %v, %v; want %v after %v", at, it.Value, err, want.rows,
					want.at)
			}
		}
		if _, err := p.Next(t.Context()); err != broken {
			t.Errorf("the end is %v, want %v", err, broken)
		}
	})
}

// TestPackKeepsStartedBatch checks that no row is lost when the caller's context ends.
func TestPackKeepsStartedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := mustPack(t, PackOptions[int]{Rows: 3},
			timed(time.Now(), io.EOF, 0, time.Second, time.Hour))
		stopped := errors.New("stopped")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, stopped)
		defer cancel()
		if _, err := p.Next(ctx); err != stopped {
			t.Fatalf("Next = %v, want %v", err, stopped)
		}
		if it, err := p.Next(t.Context()); err != nil || !slices.Equal(it.Value, []int{1, 2, 3}) {
			t.Errorf("then %v, %v; want all three rows", it.Value, err)
		}
	})
}

// TestPackAtRandom checks, for rows at any times, that the batches hold the rows in order, each
// once, within the bounds. No batch may wait for more rows for longer than Linger.
func TestPackAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var at []time.Duration
			for now := time.Duration(0); len(at) < 60; now += time.Duration(rnd.IntN(30)) *
				time.Millisecond / 2 {
				at = append(at, now)
			}
			o := PackOptions[int]{
				Rows: rnd.IntN(12), Cost: float64(rnd.IntN(15)),
				Linger: time.Duration(rnd.IntN(60)) * time.Millisecond,
				CostOf: func(n int) float64 { return float64(1 + n%5) },
			}
			start, row := time.Now(), 0
			p := mustPack(t, o, timed(start, io.EOF, at...))
			for {
				it, err := p.Next(t.Context())
				if err == io.EOF {
					break
				}
				now, first, cost := time.Since(start), it.Value[0], 0.0
				for _, n := range it.Value {
					if row++; n != row {
						t.Fatalf("seed %d: row %d follows %d", seed, n, row-1)
					}
					cost += o.CostOf(n)
				}
				if cost != it.Cost || o.Cost > 0 && cost > o.Cost && len(it.Value) > 1 ||
					o.Rows > 0 && len(it.Value) > o.Rows {
					t.Errorf("seed %d: %d rows of cost %v in a batch, bounds %+v", seed,
						len(it.Value), cost, o)
				}
				// The first row may have waited up to Linger before: it was read for the previous
				// batch and did not fit.
				if o.Linger > 0 && now > at[first-1]+2*o.Linger {
					t.Errorf("seed %d: a batch waits from %v to %v", seed, at[first-1], now)
				}
			}
			if row != len(at) {
				t.Errorf("seed %d: %d rows of %d", seed, row, len(at))
			}
		})
	}
}

// ExamplePack packs lines into batches of at most three.
func ExamplePack() {
	lines := []string{"a", "b", "c", "d"}
	batches, err := Pack(PackOptions[string]{Rows: 3, Linger: time.Second},
		func(context.Context) (string, error) {
			if len(lines) == 0 {
				return "", io.EOF
			}
			line := lines[0]
			lines = lines[1:]
			return line, nil
		})
	if err != nil {
		panic(err)
	}
	for {
		batch, err := batches.Next(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(batch.Value, "costs", batch.Cost)
	}
	// Output:
	// [a b c] costs 3
	// [d] costs 1
	// EOF
}
