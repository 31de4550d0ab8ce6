// Package page writes docs/performance.md and its figure from files of results.
package page

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/penstock-io/penstock/bench/result"
	"github.com/penstock-io/penstock/bench/rival"
)

// About is the description of a workload on the page.
type About struct {
	Name, About, Limit, LimitAbout string
	Targets                        []result.Target
}

// Target returns the targets of the workload as text.
func (a About) Target() string {
	var all []string
	for _, t := range a.Targets {
		all = append(all, t.String())
	}
	return strings.Join(all, ", ")
}

//go:embed page.md.tmpl
var files embed.FS

const ours = "penstock"

// disturbed is a number of cores. If a run has missed a target while other programs used more cores
// than this, the page marks the result as disturbed. Results with a PostgreSQL server are not
// marked, because the server counts as another program.
const disturbed = 0.3

// Main is the subcommand `page -out FILE -plots DIR RESULTS...`, which writes the page.
func Main(args []string, abouts []About) error {
	flags := flag.NewFlagSet("page", flag.ContinueOnError)
	out := flags.String("out", "../docs/performance.md", "the page")
	plots := flags.String("plots", "../docs/plots", "the folder of its figures")
	profiles := flags.String("profiles", "profiles.json",
		"file of CPU profiles by workload, as profile -keep writes it")
	reasons := flags.String("reasons", "reasons.json",
		"file with the reasons for missed targets, by workload")
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
	why := Why{}
	if why.Profiles, err = result.ReadProfiles(*profiles); err != nil {
		return err
	}
	if why.Reasons, err = readReasons(*reasons); err != nil {
		return err
	}
	text, err := Page(entries, abouts, why)
	if err != nil {
		return err
	}
	if err := os.WriteFile(*out, text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*plots, "performance.svg"),
		[]byte(figure(entries, abouts)), 0o644)
}

// Why has explanations of missed targets.
type Why struct {
	Profiles result.Profiles
	Reasons  map[string]string // as text, by the author of an analysis
}

func readReasons(path string) (all map[string]string, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// row is a workload with the result of penstock.
type row struct {
	About
	Line     result.Line // zero if there is none
	Measured bool
	Spread   string // range of the ratios, if there are several
	Figure   string
	Run      int // number of its run on the page
	Reason   string
	Profile  result.Profile // without shares if there is none
}

// Misses reports whether the workload misses a target.
func (r row) Misses() bool { return r.Measured && strings.HasPrefix(r.Verdict(), "**missed**") }

// Pairs returns the number of measured pairs, as text. A pair is a run of penstock and a run of the
// limit, a program that does only the work that cannot be avoided. If the workload has no limit,
// Pairs returns the number of runs of penstock. If nothing was measured, it returns "".
func (r row) Pairs() string {
	switch n := max(r.Line.Runs, len(r.Line.Ratios)); {
	case !r.Measured || n == 0:
		return ""
	case n == 1 && r.Line.OfLimit > 0:
		return "1 pair"
	case n == 1:
		return "1 run"
	case r.Line.OfLimit == 0:
		return fmt.Sprintf("%d runs", n)
	default:
		return fmt.Sprintf("%d pairs", n)
	}
}

// Parts returns the largest parts of the profile, with their shares.
func (r row) Parts() string {
	var all []string
	for _, s := range r.Profile.Shares {
		if s.Share >= smallestShare {
			all = append(all, fmt.Sprintf("%s %.0f %%", s.Of, 100*s.Share))
		}
	}
	return strings.Join(all, ", ")
}

// smallestShare is the smallest share that is shown.
const smallestShare = 0.03

// Verdict returns whether the result meets the targets, as text.
func (r row) Verdict() string {
	if !r.Measured {
		return "not measured"
	}
	var missed []string
	for _, t := range r.Targets {
		if by := t.Missed(r.Line); by != "" {
			missed = append(missed, by)
		}
	}
	if len(missed) == 0 {
		return "holds"
	}
	text := "**missed**: " + strings.Join(missed, "; ")
	if others := r.Line.Figures["others_cores"]; others > disturbed &&
		!strings.Contains(r.Name, "postgres") && r.Name != "w9" {
		text += fmt.Sprintf(" (disturbed: others took %.1f cores)", others)
	}
	return text
}

// Latency returns p50 and p99 of the latency as text. If the lines of the input do not contain the
// time of writing, the latency is unknown, and Latency returns "".
func (r row) Latency() string {
	if r.Line.Figures["p99_ms"] == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f, %.0f", r.Line.Figures["p50_ms"], r.Line.Figures["p99_ms"])
}

// compared is a row of the table of all programs: a workload with the share of the limit that each
// program has reached. The shares are in the order of view.Programs.
type compared struct {
	About
	Shares []string
}

// view is the input of the template.
type view struct {
	Rows     []row
	Limits   []result.Line
	Programs []string
	Compared []compared
	Settings []string // cells with the settings of the shares from other machines
	Faults   []rival.Fault
	Runs     []result.Run
	absent   []string
}

// Several reports whether the results come from several runs.
func (v view) Several() bool { return len(v.Runs) > 1 }

// Missed returns the workloads that miss a target.
func (v view) Missed() []row {
	return slices.DeleteFunc(slices.Clone(v.Rows), func(r row) bool { return !r.Misses() })
}

// Absent returns the programs that were not measured in the runs.
func (v view) Absent() string { return strings.Join(v.absent, ", ") }

// Disturbed returns the constant disturbed, for the template.
func (view) Disturbed() float64 { return disturbed }

// limitsName is the name of the workload that measures the machine without penstock.
const limitsName = "limits"

// Page returns the text of the page.
func Page(entries []result.Entry, abouts []About, why Why) ([]byte, error) {
	if len(entries) == 0 {
		return nil, errors.New("the files hold no results")
	}
	v := view{Faults: rival.Faults}
	for _, e := range entries {
		if e.Workload == limitsName {
			v.Limits = append(v.Limits, e.Line)
		}
	}
	for _, a := range abouts {
		r := row{About: a, Reason: why.Reasons[a.Name], Profile: why.Profiles[a.Name]}
		if i := find(entries, a.Name, ours); i >= 0 {
			r.Line, r.Measured, r.Figure = entries[i].Line, true, figures(entries[i].Line)
			if low, high := r.Line.Spread(); len(r.Line.Ratios) > 1 {
				r.Spread = fmt.Sprintf(" [%.3g-%.3g]", low, high)
			}
			r.Run = v.run(entries[i].Run)
		}
		v.Rows = append(v.Rows, r)
	}
	v.compare(entries, abouts)
	t, err := template.New("page.md.tmpl").Funcs(template.FuncMap{"versions": versions,
		"cell": cell}).ParseFS(files, "page.md.tmpl")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, v)
	return out.Bytes(), err
}

func find(entries []result.Entry, workload, program string) int {
	return slices.IndexFunc(entries, func(e result.Entry) bool {
		return e.Workload == workload && e.Program == program
	})
}

// run returns the number of a run on the page. A new run gets the next number.
func (v *view) run(r result.Run) int {
	for i, have := range v.Runs {
		if same(have, r) {
			return i + 1
		}
	}
	v.Runs = append(v.Runs, r)
	return len(v.Runs)
}

// compare fills the table of all programs. A cell has the share of the limit that a program has
// reached on this machine. If the program was not measured on this machine, the cell has the share
// from another machine, if there is one.
func (v *view) compare(entries []result.Entry, abouts []About) {
	v.Programs = programs(entries)
	for _, p := range v.Programs {
		if !slices.ContainsFunc(entries,
			func(e result.Entry) bool { return e.Program == p && e.OfLimit > 0 }) {
			v.absent = append(v.absent, p)
		}
	}
	for _, a := range abouts {
		if len(rival.Elsewhere[a.Name]) == 0 {
			continue
		}
		c := compared{About: a}
		for _, program := range v.Programs {
			c.Shares = append(c.Shares, share(entries, a.Name, program))
		}
		v.Compared = append(v.Compared, c)
		var settings []string
		for _, s := range rival.Elsewhere[a.Name] {
			settings = append(settings, s.Program+" ("+s.Setting+")")
		}
		v.Settings = append(v.Settings, a.Name+" | "+strings.Join(settings, ", "))
	}
}

// programs returns the names of the programs. penstock is the first. Of the others, those with the
// most results come first.
func programs(entries []result.Entry) []string {
	times := map[string]int{}
	for _, name := range rival.Names() {
		times[name] = 0 // include programs without results
	}
	for _, shares := range rival.Elsewhere {
		for _, s := range shares {
			times[s.Program]++
		}
	}
	for _, e := range entries {
		if e.Program != ours && e.Workload != limitsName {
			times[e.Program]++
		}
	}
	names := slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b))
	})
	return append([]string{ours}, names...)
}

// share formats the share of the limit's speed that a program has reached in a workload. The share
// is bold if it was measured on this machine. If there is no measurement, share returns "".
func share(entries []result.Entry, workload, program string) string {
	if i := find(entries, workload, program); i >= 0 && entries[i].OfLimit > 0 {
		return fmt.Sprintf("**%.2g** (%s)", entries[i].OfLimit, speed(entries[i].MBPerS))
	}
	for _, s := range rival.Elsewhere[workload] {
		if s.Program == program && s.OfLimit == 0 {
			return fmt.Sprintf("elsewhere (%s)", speed(s.MBPerS))
		} else if s.Program == program {
			return fmt.Sprintf("elsewhere %.2g (%s)", s.OfLimit, speed(s.MBPerS))
		}
	}
	return ""
}

// cell escapes vertical bars in text, because they would end a table cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func same(a, b result.Run) bool {
	return a.Time == b.Time && a.Machine == b.Machine && a.Command == b.Command
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

// figureNames are the figures on the page and their formats.
var figureNames = []struct{ name, format string }{
	{"in_flight", "%.0f in flight"}, {"of_requests", "%.2g of the bound in requests"},
	{"redelivered", "%.0f batches sent again"},
	{"drain_s", "%.2f s to the last record"}, {"cores", "%.2f cores"}, {"kills", "%.0f kills"},
	{"replay_bound", "bound %.0f records"},
	{"others_cores", "others took %.2f cores"},
}

func figures(l result.Line) string {
	var all []string
	for _, f := range figureNames {
		if v, ok := l.Figures[f.name]; ok && (v > 0 || f.name != "redelivered") {
			all = append(all, fmt.Sprintf(f.format, v))
		}
	}
	if l.Note != "" {
		all = append(all, l.Note)
	}
	return strings.Join(all, ", ")
}

// speed formats a speed in MB/s, below 10 with one decimal.
func speed(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
