// Package page writes docs/performance.md and its figure from files of results. It measures nothing.
package page

import (
	"bytes"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/penstock-io/penstock/bench/plot"
	"github.com/penstock-io/penstock/bench/result"
	"github.com/penstock-io/penstock/bench/rival"
)

// About is what the page says of a workload.
type About struct{ Name, About, Limit, LimitAbout, Target string }

//go:embed page.md.tmpl
var files embed.FS

const ours = "penstock"

// disturbed is how many cores other programs may take before a target that is missed says more of them than of penstock.
const disturbed = 0.3

// Main writes the page: page -out FILE -plots DIR RESULTS...
func Main(args []string, abouts []About) error {
	flags := flag.NewFlagSet("page", flag.ContinueOnError)
	out := flags.String("out", "../docs/performance.md", "the page")
	plots := flags.String("plots", "../docs/plots", "the folder of its figures")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("page: name files of results, such as bench -append FILE writes")
	}
	entries, err := result.Read(flags.Args()...)
	if err != nil {
		return err
	}
	text, err := Page(entries, abouts)
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out, text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*plots, "performance.svg"), []byte(figure(entries, abouts)), 0o644)
}

// row is a line of the page's tables.
type row struct {
	result.Line
	Ours   bool
	Spread string // of the ratios, where there are several
	Figure string
	Run    int // its number among the runs
}

// view is what the template sees.
type view struct {
	Abouts []About
	Rows   map[string][]row
	Runs   []result.Run
	Missed []string
}

// Page is the page's text.
func Page(entries []result.Entry, abouts []About) ([]byte, error) {
	v := view{Abouts: abouts, Rows: map[string][]row{}}
	for _, e := range entries {
		r := row{Line: e.Line, Ours: e.Program == ours, Figure: figures(e.Line)}
		if low, high := e.Spread(); len(e.Ratios) > 1 {
			r.Spread = fmt.Sprintf(" [%.3g-%.3g]", low, high)
		}
		r.Run = 1 + slices.IndexFunc(v.Runs, func(have result.Run) bool { return same(have, e.Run) })
		if r.Run == 0 {
			v.Runs = append(v.Runs, e.Run)
			r.Run = len(v.Runs)
		}
		if r.Ours && e.Figures["others_cores"] <= disturbed {
			v.Missed = append(v.Missed, e.Line.Missed...)
		}
		v.Rows[e.Workload] = append(v.Rows[e.Workload], r)
	}
	if len(v.Rows) == 0 {
		return nil, errors.New("the files hold no results")
	}
	t, err := template.New("page.md.tmpl").Funcs(template.FuncMap{
		"elsewhere": func(workload string) []rival.Share { return missing(v.Rows[workload], rival.Elsewhere[workload]) },
		"versions":  versions,
	}).ParseFS(files, "page.md.tmpl")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, v)
	return out.Bytes(), err
}

func same(a, b result.Run) bool {
	return a.Time == b.Time && a.Machine == b.Machine && a.Command == b.Command
}

// missing are the shares of programs that were not measured here.
func missing(rows []row, shares []rival.Share) (left []rival.Share) {
	for _, s := range shares {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.Program == s.Program }) {
			left = append(left, s)
		}
	}
	return left
}

func versions(r result.Run) string {
	var all []string
	for name, version := range r.Versions {
		if !strings.HasPrefix(version, name) {
			version = name + " " + version
		}
		all = append(all, version)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// figureNames are the figures that the page tells, and how.
var figureNames = []struct{ name, format string }{
	{"in_flight", "%.0f in flight"}, {"of_requests", "%.2g of the bound in requests"}, {"p50_ms", "p50 %.0f ms"}, {"p99_ms", "p99 %.0f ms"},
	{"drain_s", "drained in %.2f s"}, {"cores", "%.2f cores"}, {"kills", "%.0f kills"}, {"replay_bound", "bound %.0f records"},
	{"others_cores", "others took %.2f cores"},
}

func figures(l result.Line) string {
	var all []string
	for _, f := range figureNames {
		if v, ok := l.Figures[f.name]; ok {
			all = append(all, fmt.Sprintf(f.format, v))
		}
	}
	if l.Note != "" {
		all = append(all, l.Note)
	}
	return strings.Join(all, ", ")
}

// figure draws the shares of the workloads on which others were measured, here or elsewhere.
func figure(entries []result.Entry, abouts []About) string {
	var groups []plot.Group
	for _, a := range abouts {
		g := plot.Group{Title: a.Name + ": share of " + a.Limit}
		var rows []row
		for _, e := range entries {
			if e.Workload == a.Name && e.OfLimit > 0 {
				rows = append(rows, row{Line: e.Line})
				g.Bars = append(g.Bars, plot.Bar{
					Name: e.Program, Value: e.OfLimit, Ours: e.Program == ours,
					Text: fmt.Sprintf("%.3g (%.0f MB/s)", e.OfLimit, e.MBPerS),
				})
			}
		}
		if len(rows) == 0 || len(rival.Elsewhere[a.Name]) == 0 {
			continue
		}
		for _, s := range missing(rows, rival.Elsewhere[a.Name]) {
			g.Bars = append(g.Bars, plot.Bar{Name: s.Program, Value: s.OfLimit, Pale: true, Text: fmt.Sprintf("%.3g elsewhere", s.OfLimit)})
		}
		groups = append(groups, g)
	}
	return plot.Bars("What a program reaches of what the machine can do",
		"Each program beside the limit of its own machine, in one run; pale: measured elsewhere", groups)
}
