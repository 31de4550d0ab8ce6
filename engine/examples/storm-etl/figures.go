package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/plot"
)

// outcome is the result of a day with one algorithm.
type outcome struct {
	crash, resumed time.Time
	start          time.Time
	seconds        float64 // time from the start until the last row is stored
	again          int     // number of rows that were stored more than once
	p99            float64 // p99 of the time from packing to storing a tuple, in ms
	events         []event
}

func (o *outcome) goodput(rows int) float64 { return float64(rows) / o.seconds }

func readEvents(dir string) (all []event, err error) {
	f, err := os.Open(filepath.Join(dir, "events.ndjson"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil { // false for a line that the kill has cut
			all = append(all, e)
		}
	}
	return all, lines.Err()
}

// counter counts the rows that a run has stored. It reads the growing file of the run.
type counter struct {
	path string
	at   int64 // offset in the file up to which it has read
	rows int
}

func (c *counter) count() int {
	f, err := os.Open(c.path)
	if err != nil {
		return c.rows // the child has not created the file yet
	}
	defer f.Close()
	if _, err := f.Seek(c.at, io.SeekStart); err != nil {
		return c.rows
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return c.rows
		}
		c.at += int64(len(line))
		var e event
		if json.Unmarshal(line, &e) == nil {
			c.rows += e.Rows
		}
	}
}

// measure reads the stored rows and their times. It returns an error if a row is not stored.
func (o *outcome) measure(dir string, rows int, start time.Time) (err error) {
	o.start = start
	if o.events, err = readEvents(dir); err != nil {
		return err
	}
	var took []float64
	for _, e := range o.events {
		if e.Rows > 0 {
			took = append(took, e.Took)
			o.seconds = max(o.seconds, time.Unix(0, e.At).Sub(start).Seconds())
		}
	}
	slices.Sort(took)
	o.p99 = took[len(took)*99/100]
	db, err := openDB(filepath.Join(dir, "stored.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	var total, distinct int
	if err := db.QueryRow("SELECT count(*), count(DISTINCT id) FROM stored").Scan(&total,
		&distinct); err != nil {
		return err
	}
	if distinct != rows {
		return fmt.Errorf("%d of %d rows are stored", distinct, rows)
	}
	o.again = total - distinct
	return nil
}

// draw plots the goodput of both algorithms, for 1.5 times the duration of the new one's run. It
// also plots the windows of the new algorithm.
func draw(s settings, all []outcome) error {
	span := all[0].seconds * 1.5
	top := 0.0
	var series []plot.Series
	for i, name := range []string{"windows, acks, mark", "hash, no acks"} {
		x, y := all[i].perSecond(span)
		top = max(top, slices.Max(y))
		series = append(series, plot.Series{Name: name, Color: i, X: x, Y: y})
	}
	goodput := plot.Panel{
		Title: "rows stored a second; the crash is shaded", X: plot.Axis{Label: "seconds"},
		Y:      plot.Axis{Label: "rows/s"},
		Series: append([]plot.Series{all[0].shaded(top)}, series...),
	}
	windows, most := all[0].windows()
	panel := plot.Panel{
		Title: "windows, by how fast the bolts are", X: plot.Axis{Label: "seconds"},
		Y:      plot.Axis{Label: "tuples in flight, at most"},
		Series: append([]plot.Series{all[0].shaded(most)}, windows...),
	}
	f, err := os.Create(s.plot)
	if err != nil {
		return err
	}
	err = plot.Figure{
		Title: "A day's logs through twelve unequal bolts", Columns: 1,
		Panels:   []plot.Panel{goodput, panel},
		Subtitle: fmt.Sprintf("%d rows, killed when half was stored, and resumed", s.rows),
	}.WriteSVG(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// shaded returns the area from the crash until the first row after it.
func (o *outcome) shaded(top float64) plot.Series {
	from, to := o.crash.Sub(o.start).Seconds(), o.resumed.Sub(o.start).Seconds()
	for _, e := range o.events {
		if at := time.Unix(0, e.At); e.Rows > 0 && at.After(o.resumed) {
			to = at.Sub(o.start).Seconds()
			break
		}
	}
	return plot.Series{Name: "crash", Shape: plot.Band, Color: 6, X: []float64{from, to},
		Y: []float64{top, top}, Low: []float64{0, 0}}
}

// perSecond returns the number of stored rows per second. A step is 1/60 of the time shown.
func (o *outcome) perSecond(span float64) (x, y []float64) {
	const steps = 60
	x, y = make([]float64, steps), make([]float64, steps)
	for i := range x {
		x[i] = (float64(i) + .5) * span / steps
	}
	for _, e := range o.events {
		if i := int(time.Unix(0, e.At).Sub(o.start).Seconds() / span * steps); e.Rows > 0 && i >= 0 && i < steps {
			y[i] += float64(e.Rows) * steps / span
		}
	}
	return x, y
}

// windows returns a series for each speed of bolts, with the mean of their windows.
func (o *outcome) windows() (series []plot.Series, most float64) {
	var speeds []float64
	for _, r := range rates {
		if !slices.Contains(speeds, r) {
			speeds = append(speeds, r)
		}
	}
	for n, speed := range speeds {
		s := plot.Series{Name: fmt.Sprintf("%g tuples/s", speed), Color: n}
		last := math.Inf(1)
		for _, e := range o.events {
			if len(e.Windows) != len(rates) {
				continue
			}
			at, sum, count := time.Unix(0, e.At).Sub(o.start).Seconds(), 0.0, 0.0
			for i, r := range rates {
				if r == speed {
					sum, count = sum+e.Windows[i], count+1
				}
			}
			// Do not draw a line from the process before the crash to the one after it.
			if at > o.crash.Sub(o.start).Seconds() && last < o.crash.Sub(o.start).Seconds() {
				s.X, s.Y = append(s.X, at), append(s.Y, math.NaN())
			}
			last = at
			s.X, s.Y = append(s.X, at), append(s.Y, sum/count)
			most = max(most, sum/count)
		}
		series = append(series, s)
	}
	return series, most
}
