package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/audit"
)

// maxDifferences is the maximum number of differences of a route that are printed without --json.
const maxDifferences = 100

// differenceResult is a difference in `audit --json`.
type differenceResult struct {
	Route     string     `json:"route"`
	Kind      audit.Kind `json:"kind"`
	Partition string     `json:"partition,omitempty"`
	Name      string     `json:"name,omitempty"`
	From      *position  `json:"from,omitempty"`
	To        *position  `json:"to,omitempty"`
	Record    string     `json:"record,omitempty"` // its id
	Records   int64      `json:"records"`
}

// auditResult is the result of a route in `audit --json`.
type auditResult struct {
	OK    bool   `json:"ok"`
	Route string `json:"route"`
	Error string `json:"error,omitempty"`
	*audit.Report
	SinkAsked bool `json:"sink_asked"` // former name of sink_compared, until 1.0
}

func auditCommand(p *program) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit [--json] CONFIG [PIPELINE/ROUTE]",
		Short: "Recount a route: the source against the checkpoint and the sink",
		Long: `Audit reads the source of a route from its beginning, sends it through the
processors, and looks in the sink for every record that the checkpoint, or the sink's
ledger, counts as delivered. It prints each difference: a record that the sink lacks
(missing) or contains too often (extra), a range of the source that is not delivered
while no process is running (undelivered), and a range that is in the checkpoint but
not in the sink's ledger (unknown).

It works for the sources spool_dir, tail and table, and counts in the sinks file, sqlite,
postgres and mysql, and in http if audit.url is set. With any other sink only the source
is compared with the checkpoint.
Audit changes nothing, and may run while the route is running.

Exit code: 0 no differences, 1 differences, or a route that cannot be audited.`,
		Example: `  penstock audit penstock.yaml
  penstock audit --json penstock.yaml web/main | jq 'select(.kind == "missing")'`,
		Args: auditArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAudit(p, cmd, args[0], args[1:], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

// auditArgs accepts a config and, optionally, a route.
func auditArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 2 {
		return usagef("audit takes a config and a route; remove %q", args[2])
	}
	return needs("a config")(cmd, args[:min(1, len(args))])
}

func runAudit(p *program, cmd *cobra.Command, path string, names []string, asJSON bool) error {
	c, err := engine.Load(path, p.components...)
	if err != nil {
		return err
	}
	f := deadFlags{route: strings.Join(names, "")}
	routes, err := f.routes(&c)
	if err != nil {
		return usagef("audit%s", strings.TrimPrefix(err.Error(), "dead"))
	}
	errorsOnly := &slog.HandlerOptions{Level: slog.LevelError}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), errorsOnly))
	differ, failed := int64(0), 0
	for _, r := range routes {
		out := auditPrinter{w: cmd.OutOrStdout(), json: asJSON,
			route: r.pipeline.Name + "/" + r.route.Name, source: r.pipeline.Source.Component.Name}
		report, err := audit.Run(cmd.Context(), audit.Options{
			State: c.State, Pipeline: &r.pipeline, Route: &r.route, FS: p.files, Log: log,
		}, out.difference)
		if cmd.Context().Err() != nil {
			return err
		}
		if err != nil {
			failed++
		}
		if err := out.report(&report, r.route.Sink.Component.Name, err); err != nil {
			return err
		}
		differ += report.Differences
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d routes could not be audited", failed, len(routes))
	case differ > 0:
		return fmt.Errorf("audit found %s", count(differ, "difference"))
	}
	return nil
}

// auditPrinter prints the audit of one route.
type auditPrinter struct {
	w           io.Writer
	json        bool
	route       string
	source      string // name of its component
	printed     int
	undelivered bool // a range is not settled
}

func (a *auditPrinter) difference(d audit.Difference) error {
	if a.json {
		out := differenceResult{Route: a.route, Kind: d.Kind, Partition: d.Partition.ID,
			Name: d.Partition.Name, Record: d.RecordID, Records: d.Records}
		if d.RecordID == "" {
			from, to := positionOf(d.Range.From), positionOf(d.Range.To)
			out.From, out.To = &from, &to
		}
		return writeResult(a.w, out)
	}
	a.undelivered = a.undelivered || d.Kind == audit.Undelivered
	if a.printed++; a.printed > maxDifferences {
		return nil
	}
	place := "record " + printable(d.RecordID)
	if d.RecordID == "" {
		place = fmt.Sprintf("after %s up to %s", positionText(d.Range.From),
			positionText(d.Range.To))
	}
	if d.Records > 1 || d.RecordID == "" && d.Records > 0 {
		place += ", " + count(d.Records, "record")
	}
	_, err := fmt.Fprintf(a.w, "%-11s  %s  %s: %s\n", d.Kind, a.route, printable(d.Partition.Name),
		place)
	return err
}

func (a *auditPrinter) report(r *audit.Report, sink string, failed error) error {
	if a.json {
		out := auditResult{
			OK: failed == nil && r.Differences == 0, Route: a.route, Report: r,
			SinkAsked: r.Compared,
		}
		if failed != nil {
			out.Error = failed.Error()
		}
		return writeResult(a.w, out)
	}
	var b strings.Builder
	if more := a.printed - maxDifferences; more > 0 {
		fmt.Fprintf(&b, "... and %s more differences; --json prints all\n", thousands(int64(more)))
	}
	if failed != nil {
		verb := "audit failed: "
		if _, ok := errors.AsType[*audit.NotAuditedError](failed); ok {
			verb = ""
		}
		fmt.Fprintf(&b, "%s: %s%v\n", a.route, verb, failed)
		_, err := io.WriteString(a.w, b.String())
		return err
	}
	fmt.Fprintf(&b, "%s: read %s in %s", a.route, count(r.Records, "record"),
		count(r.Partitions, "partition"))
	if r.Running {
		b.WriteString(", beside a running process")
	}
	fmt.Fprintf(&b, "\n  %s not delivered yet, %s dropped by processors, %s dead letters\n",
		thousands(r.Unsettled), thousands(r.Dropped), thousands(r.Dead))
	if r.Compared {
		fmt.Fprintf(&b, "  %s must be in the sink (compared)\n", thousands(r.Expected))
	} else {
		fmt.Fprintf(&b, "  %s must be in the sink (not compared: sink %s cannot be read)\n",
			thousands(r.Expected), sink)
	}
	if r.NotInSource > 0 {
		fmt.Fprintf(&b, "  %s of the checkpoint no longer in the source: not compared\n",
			count(r.NotInSource, "partition"))
	}
	if delivered := r.NotInSource > 0 || r.Records > r.Unsettled; a.undelivered && delivered &&
		a.source == "tail" {
		b.WriteString("  an undelivered file may be a copy that a log rotation has made of a delivered " +
			"file:\n  the next run recognizes copies, and delivers only their new records\n")
	}
	fmt.Fprintf(&b, "  %s\n", count(r.Differences, "difference"))
	_, err := io.WriteString(a.w, b.String())
	return err
}
