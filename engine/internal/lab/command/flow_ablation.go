package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/engine/internal/lab/plot"
	"github.com/penstock-io/penstock/engine/internal/table"
)

// ablationCase is a line of the output of `sim flow --ablate --json`: one row of one experiment.
// The names of its fields are stable.
type ablationCase struct {
	Experiment string    `json:"experiment"`
	Case       string    `json:"case"`
	Columns    []string  `json:"columns"`
	Values     []float64 `json:"values"`
}

// ablateSeeds is the number of runs with --ablate if --seeds is not set.
const ablateSeeds = 5

func (f *flowFlags) runAblate(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("seeds") {
		f.seeds = ablateSeeds
	}
	all, err := flowsim.Ablate(cmd.Context(), f.seed, f.seeds)
	if err != nil {
		return fmt.Errorf("sim flow: --ablate: %w", err)
	}
	var page bytes.Buffer
	page.WriteString(seedsLine(f.seeds, f.seed, "--ablate"))
	for i := range all {
		switch {
		case f.into != "":
			ablateMarkdown(&page, &all[i], f.plot, f.into)
		case f.asJSON:
			err = ablateJSON(cmd.OutOrStdout(), &all[i])
		default:
			err = ablateTable(cmd.OutOrStdout(), &all[i])
		}
		if err == nil && f.plot != "" {
			err = ablatePlot(f.plot, &all[i])
		}
		if err != nil {
			return fmt.Errorf("sim flow: --ablate: %w", err)
		}
	}
	if f.into != "" {
		return writeBetween(f.into, "experiments", page.Bytes())
	}
	return nil
}

// ablateMarkdown writes an experiment as Markdown for a page. page is the path of the page, and
// plots is the directory of the plots. If plots is not empty, ablateMarkdown adds a link to the
// plot of the experiment, relative to the page.
func ablateMarkdown(w io.Writer, x *flowsim.Experiment, plots, page string) {
	fmt.Fprintf(w, "\n### %s\n\n%s.\n\n| |", x.Name, x.Question)
	for _, c := range x.Columns {
		fmt.Fprintf(w, " %s |", c.Title)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --- |", len(x.Columns)))
	for _, r := range x.Rows {
		fmt.Fprintf(w, "| %s |", r.Name)
		for _, v := range r.Values {
			fmt.Fprintf(w, " %s |", table.Number(v))
		}
		fmt.Fprintln(w)
	}
	if x.Note != "" {
		fmt.Fprintf(w, "\n%s\n", x.Note)
	}
	if plots == "" {
		return
	}
	file := filepath.Join(plots, plotName("ablate", x.Name))
	if near, err := filepath.Rel(filepath.Dir(page), file); err == nil {
		file = near
	}
	fmt.Fprintf(w, "\n![%s](%s)\n", x.Name, filepath.ToSlash(file))
}

func ablateJSON(w io.Writer, x *flowsim.Experiment) error {
	enc := json.NewEncoder(w)
	for _, r := range x.Rows {
		c := ablationCase{Experiment: x.Name, Case: r.Name, Values: r.Values}
		for _, col := range x.Columns {
			c.Columns = append(c.Columns, col.Title)
		}
		if err := enc.Encode(c); err != nil {
			return err
		}
	}
	return nil
}

func ablateTable(w io.Writer, x *flowsim.Experiment) error {
	fmt.Fprintf(w, "%s: %s\n\n", x.Name, x.Question)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\t")
	for _, c := range x.Columns {
		fmt.Fprintf(t, "%s\t", c.Title)
	}
	fmt.Fprintln(t)
	for _, r := range x.Rows {
		fmt.Fprintf(t, "%s\t", r.Name)
		for _, v := range r.Values {
			fmt.Fprintf(t, "%s\t", table.Number(v))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if x.Note != "" {
		fmt.Fprintf(w, "\n%s\n", x.Note)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// rounded rounds v to the precision with which the table shows it.
func rounded(v float64) float64 {
	if short, err := strconv.ParseFloat(table.Number(v), 64); err == nil {
		return short
	}
	return v
}

// ablatePlot draws a panel of bars for each column of the experiment, with a bar for each row.
func ablatePlot(dir string, x *flowsim.Experiment) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	page := plot.Figure{Title: x.Name, Subtitle: x.Question, Columns: 2}
	for i, c := range x.Columns {
		p := plot.Panel{Title: c.Title}
		for _, r := range x.Rows {
			p.Bars = append(p.Bars, plot.Bar{Name: r.Name, Value: rounded(r.Values[i]), Color: i})
		}
		page.Panels = append(page.Panels, p)
	}
	file, err := os.Create(filepath.Join(dir, plotName("ablate", x.Name)))
	if err != nil {
		return err
	}
	return errors.Join(page.WriteSVG(file), file.Close())
}
