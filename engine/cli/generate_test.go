package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/internal/generate"
)

func TestGenerateSameSeedSameBytes(t *testing.T) {
	t.Chdir(t.TempDir())
	p := newProgram(newFake(), nil)
	first := p.try(t, "generate", "--lines", "3000", "--seed", "9")
	second := p.try(t, "generate", "--lines=3000", "--seed=9", "--out", "out.log")
	file, err := os.ReadFile("out.log")
	if err != nil {
		t.Fatal(err)
	}
	if first.code != exitOK || second.code != exitOK || second.out != "" || first.out != string(file) {
		t.Errorf("codes %d, %d; %d and %d bytes", first.code, second.code, len(first.out), len(file))
	}
	if n := bytes.Count(file, []byte("\n")); n != 3000 {
		t.Errorf("%d lines, want 3000", n)
	}
	if none := p.try(t, "generate", "--lines", "0"); none.out != "" || none.code != exitOK {
		t.Errorf("no lines: %+v", none)
	}
}

// lineClock records the time of each line.
type lineClock struct {
	begun time.Time
	at    []time.Duration
	fail  error
}

func (c *lineClock) Write(b []byte) (int, error) {
	for range bytes.Count(b, []byte("\n")) {
		c.at = append(c.at, time.Since(c.begun))
	}
	return len(b), c.fail
}

// TestPace checks that each line is written at most one interval after its planned time, even if
// earlier writes were delayed.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, perSecond := range []int64{3, 100, 5000} {
			g, err := generate.New("common", 1)
			if err != nil {
				t.Fatal(err)
			}
			c := &lineClock{begun: time.Now()}
			lines := perSecond * 4
			if err := writeLines(t.Context(), c, g, lines, perSecond); err != nil {
				t.Fatal(err)
			}
			if int64(len(c.at)) != lines {
				t.Fatalf("%d/s: %d lines, want %d", perSecond, len(c.at), lines)
			}
			for i, at := range c.at {
				due := time.Duration(float64(i+1) / float64(perSecond) * float64(time.Second))
				if at < due-time.Microsecond || at > due+paceEvery+time.Microsecond {
					t.Fatalf("%d/s: line %d at %v, due at %v", perSecond, i+1, at, due)
				}
			}
		}
	})
}

func TestPaceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := generate.New("common", 1)
		if err != nil {
			t.Fatal(err)
		}
		full := &lineClock{fail: errors.New("disk full")}
		if err := writeLines(t.Context(), full, g, 10, 10); !errors.Is(err, full.fail) {
			t.Errorf("paced to a full disk = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := writeLines(ctx, &lineClock{}, g, 1000, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("paced until a deadline = %v", err)
		}
	})
}
