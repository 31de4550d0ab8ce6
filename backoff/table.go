//penstock:pure

package backoff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Table returns a policy that waits each of delays once, in order, and then gives up. Use it for
// schedules such as those of payment notifications: 15s, 15s, 30s, 3m, 10m, ... An empty table
// gives up at once.
func Table(delays ...time.Duration) Ladder {
	return newLadder(tableGrowth{slices.Clone(delays)}, jitter{}, 0)
}

// Point is one line of a [Pattern].
type Point struct {
	From  uint32        // first step that waits Delay
	Delay time.Duration // wait at each step from From until the From of the next point
}

// Pattern returns a policy that chooses the wait by the step, counted from 0. The wait is the Delay
// of the point with the highest From that is not above the step. Before the first point the wait is
// 0. Points may come in any order. Two points with the same From are invalid, and the later one
// counts. Example: Camel's delayPattern "5:1000;10:5000" is Pattern(Point{5, time.Second},
// Point{10, 5 * time.Second}).
func Pattern(points ...Point) Ladder {
	sorted := slices.Clone(points)
	slices.SortStableFunc(sorted, func(a, b Point) int { return cmp.Compare(a.From, b.From) })
	return newLadder(patternGrowth{sorted}, jitter{}, 0)
}

type tableGrowth struct{ delays []time.Duration }

func (g tableGrowth) interval(n uint32) (time.Duration, bool) {
	if int64(n) >= int64(len(g.delays)) {
		return 0, false
	}
	return max(g.delays[n], 0), true
}

func (g tableGrowth) constantFrom(uint32) bool { return false }

func (g tableGrowth) validate(time.Duration) error {
	if len(g.delays) == 0 {
		return errors.New("delays is empty: a table needs at least one")
	}
	for i, d := range g.delays {
		if d < 0 {
			return fmt.Errorf("delays: number %d, %v, is negative", i+1, d)
		}
	}
	return nil
}

func (g tableGrowth) spec() string {
	return "table delays=" + joined(g.delays, ",", time.Duration.String)
}

// joined returns the texts of the values in list, with sep between them.
func joined[T any](list []T, sep string, text func(T) string) string {
	texts := make([]string, len(list))
	for i, x := range list {
		texts[i] = text(x)
	}
	return strings.Join(texts, sep)
}

type patternGrowth struct{ points []Point }

func (g patternGrowth) interval(n uint32) (time.Duration, bool) {
	i, _ := slices.BinarySearchFunc(g.points, uint64(n)+1, func(p Point, n uint64) int {
		return cmp.Compare(uint64(p.From), n)
	})
	if i == 0 {
		return 0, true
	}
	return max(g.points[i-1].Delay, 0), true
}

func (g patternGrowth) constantFrom(n uint32) bool {
	return len(g.points) == 0 || n >= g.points[len(g.points)-1].From
}

func (g patternGrowth) validate(time.Duration) error {
	if len(g.points) == 0 {
		return errors.New("points is empty: a pattern needs at least one")
	}
	for i, p := range g.points {
		if p.Delay < 0 {
			return fmt.Errorf("points: %d:%v is negative", p.From, p.Delay)
		}
		if i > 0 && p.From == g.points[i-1].From {
			return fmt.Errorf("points: step %d is given twice", p.From)
		}
	}
	return nil
}

func (g patternGrowth) spec() string {
	return "pattern points=" + joined(g.points, ",", func(p Point) string {
		return fmt.Sprintf("%d:%v", p.From, p.Delay)
	})
}
