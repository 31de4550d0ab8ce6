package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/internal/lab/plot"
	"github.com/penstock-io/penstock/stream"
)

// leastMinute is the lowest value on the axis of minutes. First attempts are drawn there, because a
// logarithmic axis has no 0.
const leastMinute = 0.1

// writePlot draws the deliveries that needed more than one attempt, as SVG or PNG.
func writePlot(path string, deliveries []stream.Delivery) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if closing := f.Close(); err == nil {
			err = closing
		}
	}()
	if filepath.Ext(path) == ".png" {
		return timelines(deliveries).WritePNG(f)
	}
	return timelines(deliveries).WriteSVG(f)
}

// timelines returns a figure with a row for each delivery that needed more than one attempt. Each
// attempt has two points: its planned time and its real time.
func timelines(deliveries []stream.Delivery) plot.Figure {
	var rows []stream.Delivery
	for _, d := range deliveries {
		if len(d.Attempts) > 1 {
			rows = append(rows, d)
		}
	}
	plans := plot.Series{Name: "planned", Shape: plot.Dots, Color: 6}
	refused := plot.Series{Name: "not accepted", Shape: plot.Dots, Color: 1}
	accepted := plot.Series{Name: "accepted", Shape: plot.Dots, Color: 2}
	at := func(s *plot.Series, row int, minutes float64) {
		s.X = append(s.X, max(leastMinute, minutes))
		s.Y = append(s.Y, float64(len(rows)-row))
	}
	for row, d := range rows {
		for n := range d.Attempts {
			at(&plans, row, planned(n).Minutes())
		}
		for _, a := range d.Attempts {
			s := &refused
			if a.Event == "accept" {
				s = &accepted
			}
			at(s, row, a.At.Sub(d.Parked).Minutes()*speedup)
		}
	}
	return plot.Figure{
		Title:    "Deliveries with several attempts",
		Subtitle: "dead is down for an hour; penstock stops once",
		Panels: []plot.Panel{
			{
				X: plot.Axis{
					Label:  "minutes since the order was paid",
					Log:    true,
					Format: minutes,
				},
				Y: plot.Axis{
					Whole:  true,
					Format: func(v float64) string { return keyOf(rows, v) },
				},
				Series: []plot.Series{plans, refused, accepted},
			},
		},
	}
}

func minutes(v float64) string {
	if v < 1 {
		return "0"
	}
	return fmt.Sprintf("%g", v)
}

// keyOf returns the key of the delivery in row v.
func keyOf(rows []stream.Delivery, v float64) string {
	n := len(rows) - int(math.Round(v))
	if n < 0 || n >= len(rows) || v != math.Round(v) {
		return ""
	}
	if rows[n].Key == unknownOrder {
		return "unknown" // the whole key does not fit into the margin
	}
	return rows[n].Key
}
