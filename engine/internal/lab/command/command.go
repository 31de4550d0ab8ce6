// Package command has the commands of the simulators: `penstock sim` runs a simulation, and
// `penstock backoff` prints the waits of a backoff policy. Programs that embed the engine do not
// have these commands.
//
// The package reads files and prints results. The packages contention, csma and flowsim run the
// simulations.
package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/internal/lab/plot"
)

// Commands returns the commands for [cli.Program].
func Commands() []*cobra.Command {
	sim := &cobra.Command{
		Use:   "sim",
		Short: "Simulate flow control, backoff and shared media",
		Long: `Sim runs the simulators that the project's claims are measured with. The same seed
gives the same figures. docs/which-backoff.md and docs/flow-control.md show their
results, with the commands that print them.`,
		Example: `  penstock sim flow docs/scenarios/*.yaml
  penstock sim backoff --clients 10,100 --policy full --policy recommended
  penstock sim csma --stations 2,10,64 --json`,
	}
	sim.AddCommand(newFlowCommand(), newContentionCommand(), newCSMACommand())
	return []*cobra.Command{newBackoffCommand(), sim}
}

func usagef(format string, args ...any) error {
	return &cli.UsageError{Message: fmt.Sprintf(format, args...)}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		return usagef("%s takes no arguments, and %q is one", name, args[0])
	}
	return nil
}

// output has the flags for the form of the results.
type output struct {
	asJSON bool
	plot   string
}

// addFlags adds the flags --json and --plot. The parameter json is the help text of --json.
func (o *output) addFlags(flags *pflag.FlagSet, json string) {
	flags.BoolVar(&o.asJSON, "json", false, json)
	flags.StringVar(&o.plot, "plot", "", "file to draw to, .svg or .png, replaced if it exists")
}

// line writes v as one line of JSON if --json is set.
func (o output) line(w io.Writer, v any) error {
	if !o.asJSON {
		return nil
	}
	return writeJSON(w, v)
}

// finish draws the figure if --plot is set, and writes text unless --json is set.
func (o output) finish(w io.Writer, text string, figure func() plot.Figure) error {
	if o.plot != "" {
		if err := writePlot(o.plot, figure()); err != nil {
			return err
		}
	}
	if o.asJSON {
		return nil
	}
	_, err := io.WriteString(w, text)
	return err
}

// writeJSON writes v as one line of JSON.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// writePlot draws f into the file at path. The extension of path selects SVG or PNG.
func writePlot(path string, f plot.Figure) (err error) {
	write := f.WriteSVG
	switch strings.ToLower(filepath.Ext(path)) {
	case ".svg":
	case ".png":
		write = f.WritePNG
	default:
		return usagef("--plot %q: want a file that ends in .svg or .png", path)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	defer func() {
		if closed := file.Close(); err == nil && closed != nil {
			err = fmt.Errorf("--plot: %w", closed)
		}
	}()
	return write(file)
}
