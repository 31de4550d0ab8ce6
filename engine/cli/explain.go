package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/internal/trace"
)

type explainFlags struct {
	worker, at string
	json       bool
	timeout    time.Duration
}

func (p *program) explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain [--worker W] [--at TIME] [--json] TRACE|CONFIG|ADDRESS",
		Short: "Explain the size of a worker's window",
		Long: `Explain prints the reason for the size of a worker's window, the gate that limits the
worker (its window, the credit that it advertises, a rate limit, the breaker, the
replay bound, order, memory, or none), and the changes that would open the gate.
Without --worker it prints a line for each worker, and the limit of the route.

It reads a trace, for any moment of a run:

    flow: { trace: ./flow.ndjson }                 # in the config, then run
    penstock explain flow.ndjson                   # all workers, at the end
    penstock explain flow.ndjson --worker a:8080 --at 90s

or asks a running process for its current state. It connects to the address in the
config's ` + "`admin:`" + `, or to the given address host:port with the token in
` + tokenVariable + `:

    penstock explain penstock.yaml --worker a:8080

W is a worker's name, or a unique part of it; in a trace of ` + "`sim flow`" + ` workers
are numbers from 0. TIME is a duration since the start, or a time as in a log.
docs/flow-control.md describes the algorithms.`,
		Example: `  penstock explain flow.ndjson
  penstock explain flow.ndjson --worker http://a:8080/in --at 2026-11-21T14:03:05Z
  penstock explain 127.0.0.1:7070 --json | jq 'select(.gate == "breaker") | .worker'`,
		Args: needs("a trace, a config or an address"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.explain(cmd, args[0], &f) },
	}
	cmd.Flags().StringVar(&f.worker, "worker", "", "one worker: its name, or a unique part of it")
	cmd.Flags().StringVar(&f.at, "at", "", "moment of a trace: 90s after its start, or "+
		"2026-11-21T14:03:05Z; default: its end")
	cmd.Flags().BoolVar(&f.json, "json", false, "one object a line")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 5*time.Second,
		"time limit for the process's response")
	return cmd
}

func (p *program) explain(cmd *cobra.Command, what string, f *explainFlags) error {
	if err := checkTimeout(cmd, f.timeout); err != nil {
		return err
	}
	isTrace, err := looksLikeTrace(what)
	switch {
	case err != nil:
		return err
	case isTrace:
		return f.explainTrace(cmd.OutOrStdout(), what)
	case f.at != "":
		return usagef("explain: --at is a moment of a trace, but %s is not a trace; a process "+
			"reports only its current state", what)
	}
	return p.explainProcess(cmd, what, f)
}

// looksLikeTrace reports whether the argument is the path of a trace file. Otherwise the argument
// is a config or an address. looksLikeTrace returns an error for a JSON file that is missing or not
// a trace.
func looksLikeTrace(what string) (bool, error) {
	file, err := os.Open(what)
	if errors.Is(err, os.ErrNotExist) && (strings.HasSuffix(what, ".ndjson") || strings.HasSuffix(what, ".json")) {
		const text = "explain: there is no file %s; write one with `flow: {trace: FILE}` in a " +
			"config, or with `penstock sim flow --trace`"
		return false, usagef(text, what)
	}
	if err != nil { // an address, or a config (its reader reports errors)
		return false, nil
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return false, nil // a config of several files
	}
	begin := make([]byte, 64)
	n, err := io.ReadFull(file, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fmt.Errorf("explain: %w", err)
	}
	begin = begin[:n]
	switch {
	case trace.Begins(begin):
		return true, nil
	case strings.HasSuffix(what, ".ndjson") || bytes.HasPrefix(begin, []byte("{")) && !strings.HasSuffix(what, ".yaml"):
		return false, usagef("explain: %s is not a trace: its first line has no "+
			"penstock_trace", what)
	}
	return false, nil
}

func (f *explainFlags) explainTrace(out io.Writer, path string) error {
	s, err := f.story(path, f.worker)
	if err != nil {
		return err
	}
	if f.worker != "" && !slices.Contains(s.Names, f.worker) {
		name, err := theOne(f.worker, s.Names, path)
		if err != nil {
			return err
		}
		if s, err = f.story(path, name); err != nil {
			return err
		}
		f.worker = name
	}
	if f.worker != "" && s.One < 0 {
		return usagef("explain: worker %s did not exist %s after the start; use another "+
			"--at", f.worker, after(s.At))
	}
	return f.print(out, s, moment(s))
}

// print prints the state of the route in the summary s or, if the flag --worker is set, only that
// of the worker with the index s.One. The parameter when is the time of this state, as text.
func (f *explainFlags) print(out io.Writer, s *explain.Summary, when string) error {
	switch {
	case f.worker == "" && f.json:
		return explainAllJSON(out, &s.Route, s.At)
	case f.worker == "":
		return explainAllText(out, &s.Route, when)
	case f.json:
		return writeResult(out, oneJSON(s, &s.Workers[s.One]))
	}
	return explainOneText(out, s)
}

// story replays the trace at path up to the time of the flag --at, and returns the state of the
// route at this time.
func (f *explainFlags) story(path, worker string) (*explain.Summary, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	defer file.Close()
	player, err := trace.NewPlayer(file)
	if err != nil {
		return nil, fmt.Errorf("explain: %s: %w", path, err)
	}
	at, err := instant(f.at, player.About.Started)
	if err != nil {
		return nil, err
	}
	s, err := explain.FromTrace(player, at, worker)
	if err != nil {
		return nil, fmt.Errorf("explain: %s: %w%s", path, err,
			trace.OtherProgram(err, pipeline.Version(), runtime.GOARCH))
	}
	return s, nil
}

// instant parses the flag --at.
func instant(text string, started time.Time) (time.Duration, error) {
	if text == "" {
		return explain.Forever, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return 0, usagef("explain: --at is %v; the trace begins at 0s", d)
		}
		return d, nil
	}
	when, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		const want = "neither a time after the start, such as 90s, nor a moment, such as 2026-11-21T14:03:05Z"
		return 0, usagef("explain: --at: %q is %s", text, want)
	case started.IsZero():
		return 0, usagef("explain: --at: the trace has no start time; give the time after its " +
			"start, such as 90s")
	case when.Before(started):
		return 0, usagef("explain: --at is before the trace begins, at %s", started.Format(time.RFC3339))
	}
	return when.Sub(started), nil
}

// theOne returns the name in names that equals part. If there is none, it returns the only name
// that contains part. Otherwise it returns an error.
func theOne(part string, names []string, where string) (string, error) {
	var found []string
	for _, n := range names {
		if n == part {
			return n, nil
		}
		if strings.Contains(n, part) {
			found = append(found, n)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", usagef("explain: %q matches several workers: %s", part, listed(found))
	case len(names) == 0:
		return "", usagef("explain: %s has no workers yet", where)
	}
	meant := ""
	if near := config.Nearest(part, names); near != "" {
		meant = fmt.Sprintf("; did you mean %q?", near)
	}
	return "", usagef("explain: there is no worker %q in %s; the workers are "+
		"%s%s", part, where, listed(names), meant)
}

// listed joins names with commas. Beyond a limit, it gives only the number of further names.
func listed(names []string) string {
	const most = 20
	shown := make([]string, 0, most)
	for _, n := range names[:min(most, len(names))] {
		shown = append(shown, printable(n))
	}
	text := strings.Join(shown, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (p *program) explainProcess(cmd *cobra.Command, what string, f *explainFlags) error {
	status, err := ask(p, cmd, what, f.timeout)
	if err != nil {
		return err
	}
	at := time.Duration(status.Seconds * float64(time.Second))
	routes := explain.FromStatus(status)
	if f.worker != "" {
		var names []string
		for _, r := range routes {
			for i := range r.Workers {
				names = append(names, r.Workers[i].Name)
			}
		}
		slices.Sort(names)
		if f.worker, err = theOne(f.worker, slices.Compact(names), what); err != nil {
			return err
		}
	}
	for _, r := range routes {
		s := &explain.Summary{Route: *r, At: at, One: slices.IndexFunc(r.Workers,
			func(w explain.Worker) bool { return w.Name == f.worker })}
		if f.worker == "" || s.One >= 0 {
			when := "now, " + after(at) + " after its start"
			if err := f.print(cmd.OutOrStdout(), s, when); err != nil {
				return err
			}
		}
		if f.json {
			continue
		}
		if err := explainParts(cmd.OutOrStdout(), status, r.Name, f.worker); err != nil {
			return err
		}
	}
	return nil
}
