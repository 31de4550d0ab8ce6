package page

import (
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/bench/plot"
	"github.com/penstock-io/penstock/bench/result"
	"github.com/penstock-io/penstock/bench/rival"
)

// figure draws the share of the limit that each program reached, on this or another machine. It
// shows the workloads that penstock was measured on and for which rival.Elsewhere has shares.
func figure(entries []result.Entry, abouts []About) string {
	var groups []plot.Group
	for _, a := range abouts {
		shared := slices.ContainsFunc(rival.Elsewhere[a.Name],
			func(s rival.Share) bool { return s.OfLimit > 0 })
		if !shared || find(entries, a.Name, ours) < 0 {
			continue
		}
		g := plot.Group{Title: a.Name + ": " + a.About, Subtitle: "1 is " + a.LimitAbout}
		for _, e := range entries {
			if e.Workload == a.Name && e.OfLimit > 0 {
				g.Bars = append(g.Bars, plot.Bar{
					Name: e.Program, Value: e.OfLimit, Ours: e.Program == ours,
					Text: fmt.Sprintf("%.2g (%s MB/s)", e.OfLimit, speed(e.MBPerS)),
				})
			}
		}
		for _, s := range rival.Elsewhere[a.Name] {
			if s.OfLimit > 0 && find(entries, a.Name, s.Program) < 0 {
				g.Bars = append(g.Bars, plot.Bar{
					Name: s.Program, Value: s.OfLimit, Pale: true,
					Text: fmt.Sprintf("%.2g (%s MB/s)", s.OfLimit, speed(s.MBPerS)),
				})
			}
		}
		slices.SortStableFunc(g.Bars, func(x, y plot.Bar) int {
			switch {
			case x.Value > y.Value:
				return -1
			case x.Value < y.Value:
				return 1
			}
			return 0
		})
		groups = append(groups, g)
	}
	return plot.Bars("What a program reaches of what the machine can do",
		"Each program beside the limit of its own machine in one run. "+
			"Blue: penstock. Dark: measured in the same run. Pale: "+
			"absent here, measured elsewhere.", groups)
}
