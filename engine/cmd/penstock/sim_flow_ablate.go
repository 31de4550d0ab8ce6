package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/plot"
	"github.com/penstock-io/penstock/engine/internal/sim/flow"
)

// simFlowCase is a line of `sim flow --ablate --json`; its names are stable.
type simFlowCase struct {
	Experiment string    `json:"experiment"`
	Case       string    `json:"case"`
	Columns    []string  `json:"columns"`
	Values     []float64 `json:"values"`
}

// ablateSeeds is how many runs --ablate takes where --seeds is not given.
const ablateSeeds = 5

func (f *simFlowFlags) runAblate(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("seeds") {
		f.seeds = ablateSeeds
	}
	all, err := flow.Ablate(cmd.Context(), f.seed, f.seeds)
	if err != nil {
		return fmt.Errorf("sim flow: --ablate: %w", err)
	}
	for i := range all {
		if f.asJSON {
			err = ablateJSON(cmd.OutOrStdout(), &all[i])
		} else {
			err = ablateTable(cmd.OutOrStdout(), &all[i])
		}
		if err == nil && f.plot != "" {
			err = ablatePlot(f.plot, &all[i])
		}
		if err != nil {
			return fmt.Errorf("sim flow: --ablate: %w", err)
		}
	}
	return nil
}

func ablateJSON(w io.Writer, x *flow.Experiment) error {
	enc := json.NewEncoder(w)
	for _, r := range x.Rows {
		c := simFlowCase{Experiment: x.Name, Case: r.Name, Values: r.Values}
		for _, col := range x.Columns {
			c.Columns = append(c.Columns, col.Title)
		}
		if err := enc.Encode(c); err != nil {
			return err
		}
	}
	return nil
}

func ablateTable(w io.Writer, x *flow.Experiment) error {
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
			fmt.Fprintf(t, "%s\t", figure(v))
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

// ablatePlot draws a panel of bars for each column.
func ablatePlot(dir string, x *flow.Experiment) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	page := plot.Figure{Title: x.Name, Subtitle: x.Question, Columns: 2}
	for i, c := range x.Columns {
		p := plot.Panel{Title: c.Title}
		for _, r := range x.Rows {
			p.Bars = append(p.Bars, plot.Bar{Name: r.Name, Value: r.Values[i], Color: i})
		}
		page.Panels = append(page.Panels, p)
	}
	file, err := os.Create(filepath.Join(dir, plotName("ablate", x.Name)))
	if err != nil {
		return err
	}
	return errors.Join(page.WriteSVG(file), file.Close())
}
