package command

import (
	"io"
	"strconv"

	"github.com/penstock-io/penstock/engine/internal/lab/csma"
	"github.com/penstock-io/penstock/engine/internal/lab/plot"
	"github.com/penstock-io/penstock/engine/internal/table"
)

// retryChance is a line of the output of `sim csma --by-retry --json`: the probability that a retry
// collides. The names of its fields are stable.
type retryChance struct {
	Stations  int     `json:"stations"`
	Retry     int     `json:"retry"`
	Collision float64 `json:"collision"`
}

// runByRetry prints the probability of another collision, for each retry of a frame.
func (f csmaFlags) runByRetry(out io.Writer) error {
	if f.attempts < 2 || f.attempts > 1000 {
		return usagef("sim csma --by-retry: --attempts is %d; want 2 to 1000", f.attempts)
	}
	header := []string{"retry", "slots"}
	panel := plot.Panel{
		X: plot.Axis{Label: "retry", Whole: true},
		Y: plot.Axis{Label: "chance of another collision"},
	}
	for i, n := range f.stations {
		if n < 1 {
			return usagef("sim csma: stations %d: want 1 or more", n)
		}
		name := strconv.Itoa(n) + " stations"
		header = append(header, name)
		panel.Series = append(panel.Series, plot.Series{Name: name, Color: i})
	}
	rows := [][]string{header}
	for retry := 1; retry < f.attempts; retry++ {
		row := []string{strconv.Itoa(retry), strconv.Itoa(1 << min(retry, csma.MaxExponent))}
		for i, n := range f.stations {
			p := csma.CollisionProbability(n, retry)
			row = append(row, share(p))
			s := &panel.Series[i]
			s.X, s.Y = append(s.X, float64(retry)), append(s.Y, p)
			if err := f.line(out, retryChance{n, retry, p}); err != nil {
				return err
			}
		}
		rows = append(rows, row)
	}
	return f.finish(out, table.Text(rows, 0), func() plot.Figure {
		return plot.Figure{
			Title:    "Chance of another collision, by retry",
			Subtitle: "all stations have collided as often: penstock sim csma --by-retry",
			Panels:   []plot.Panel{panel},
		}
	})
}
