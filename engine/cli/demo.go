package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/demo"
	"github.com/penstock-io/penstock/engine/internal/generate"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/supervise"
)

// Size and times of the demo.
const (
	demoRecords = 60_000
	demoFast    = 20 * time.Millisecond  // duration of a request to the fast receiver
	demoSlow    = 100 * time.Millisecond // duration of a request to the slow receiver
	demoKill    = 5 * time.Second        // time at which the fast receiver dies
	demoRevive  = 10 * time.Second       // time at which the fast receiver restarts
	demoBound   = 50 * time.Second       // maximum duration of the demo
	demoEvery   = 200 * time.Millisecond // interval at which a terminal is redrawn
)

// demoResult is the line of `demo --json`.
type demoResult struct {
	OK       bool    `json:"ok"`
	Error    string  `json:"error,omitempty"`
	Seconds  float64 `json:"seconds"`
	Records  int     `json:"records"`
	Lost     int     `json:"lost"`     // records that no receiver has accepted
	Repeated int     `json:"repeated"` // records that were accepted more than once
	// Again is the number of repeated requests that the receivers ignored, because they recognized
	// the Idempotency-Key.
	Again int `json:"again"`
	routeResult
	// Bound is the maximum number of bytes that a kill of penstock itself would have repeated.
	Bound   int64          `json:"repeat_bound_bytes"`
	Workers []workerResult `json:"workers"`
}

type workerResult struct {
	Name      string `json:"name"`
	Delivered uint64 `json:"delivered"` // batches
	Failed    uint64 `json:"failed"`
}

func (p *program) demoCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "demo [--json]",
		Short: "Show delivery to slow and dying receivers, in under a minute",
		Long: `Demo starts two HTTP receivers on this machine, one of them slow, and delivers 60,000
log lines to them. It kills the fast one after 5 seconds, and restarts it after 10.
Meanwhile it shows the window and the state of each worker. At the end it prints the
number of records that were lost, and of records that were stored twice, counted at the
receivers. They recognise a request that is repeated after a lost response by its
Idempotency-Key.

It needs no network and no config, and removes its files.`,
		Example: "  penstock demo\n  penstock demo --json",
		Args:    nothing,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.demo(cmd, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print only one line of JSON at the end")
	return cmd
}

// play is a running demo.
type play struct {
	tally      *demo.Tally
	fast, slow *demo.Receiver
	engine     *engine.Engine
	screen     *screen // nil if lines are printed
	out        io.Writer
	began      time.Time
	said       time.Time
	act        string // the last action
}

func (p *program) demo(cmd *cobra.Command, asJSON bool) (err error) {
	dir, err := os.MkdirTemp("", "penstock-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := &play{tally: demo.NewTally(demoRecords), out: cmd.OutOrStdout(), screen: terminal(cmd.OutOrStdout())}
	if asJSON {
		d.out, d.screen = io.Discard, nil
	}
	d.fast, d.slow = demo.NewReceiver(demoFast, d.tally), demo.NewReceiver(demoSlow, d.tally)
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), demoBound, errors.New("the demo did "+
		"not end in time; is the machine very busy?"))
	defer cancel()
	for _, r := range []*demo.Receiver{d.fast, d.slow} {
		if err := r.Revive(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Kill()) }()
	}
	path, err := d.write(dir)
	if err != nil {
		return err
	}
	c, err := engine.Load(path, p.components...)
	if err != nil {
		return err
	}
	if d.engine, err = engine.New(c, engine.Options{Once: true, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	runErr := d.run(ctx)
	if asJSON {
		return errors.Join(runErr, writeResult(cmd.OutOrStdout(), d.result(runErr)))
	}
	if runErr == nil {
		_, err = io.WriteString(d.out, d.end())
	}
	return errors.Join(runErr, err)
}

// write creates the input data and the config in dir, and returns the path of the config.
func (d *play) write(dir string) (config string, err error) {
	g, err := generate.New("common", 1)
	if err != nil {
		return "", err
	}
	var text []byte
	for n := range demoRecords {
		text = g.Append(fmt.Appendf(text, "%d ", n))
	}
	if err := os.Mkdir(filepath.Join(dir, "spool"), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "spool", "demo.log"), text, 0o600); err != nil {
		return "", err
	}
	config = filepath.Join(dir, "penstock.yaml")
	return config, os.WriteFile(config, fmt.Appendf(nil, `pipelines:
  demo:
    source: { spool_dir: { path: ./spool, quiet_period: 1ms } }
    sink: { http: { endpoints: [%q, %q], body: raw } }
    batch: { records: 20 }
`, d.fast.URL(), d.slow.URL()), 0o600)
}

// run delivers the data. Meanwhile the fast receiver dies and restarts.
func (d *play) run(ctx context.Context) error {
	d.began = time.Now()
	group := supervise.NewGroup(ctx)
	ended := make(chan error, 1)
	group.Go("engine", func(ctx context.Context) error {
		ended <- d.engine.Run(ctx)
		return nil
	})
	kill, revive := time.NewTimer(demoKill), time.NewTimer(demoRevive)
	tick := time.NewTicker(demoEvery)
	defer kill.Stop()
	defer revive.Stop()
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			d.show(true)
			if err := errors.Join(err, group.Wait()); err != nil {
				return err
			}
			return d.loss()
		case <-kill.C:
			d.act = "the fast receiver was killed"
			if err := d.fast.Kill(); err != nil {
				group.Stop(err)
			}
		case <-revive.C:
			d.act = "the fast receiver was restarted"
			if err := d.fast.Revive(context.WithoutCancel(ctx)); err != nil {
				group.Stop(err)
			}
		case <-tick.C:
			d.show(false)
		}
	}
}

// loss returns an error if a record has arrived at no receiver.
func (d *play) loss() error {
	if lost, _ := d.tally.Count(); lost > 0 {
		return fmt.Errorf("%d records were lost", lost)
	}
	return nil
}

// show draws the progress on a terminal. Without a terminal, it prints a line at most once a
// second. last means that this is the last call: the drawing stays, or a line is printed in any
// case.
func (d *play) show(last bool) {
	r := d.engine.Status().Routes[0]
	if d.screen != nil {
		d.screen.draw(d.picture(&r))
		if last {
			d.screen.keep()
		}
		return
	}
	if now := time.Now(); last || now.Sub(d.said) >= time.Second {
		d.said = now
		line := fmt.Sprintf("%4.1f s  delivered %s of %s", time.Since(d.began).Seconds(),
			thousands(r.Delivered), thousands(demoRecords))
		for _, w := range r.Workers {
			line += fmt.Sprintf("; %s %s, window %.0f", d.name(w.Name), w.State, w.Window)
		}
		fmt.Fprintln(d.out, line)
	}
}

func (d *play) name(worker string) string {
	if worker == d.fast.URL() {
		return "fast"
	}
	return "slow"
}

// Widths of columns. With them, a line fits into a terminal of 80 columns.
const (
	demoBar    = 18 // characters
	demoWindow = 30 // window size that fills the bar
)

func (d *play) picture(r *status.Route) []string {
	elapsed := time.Since(d.began)
	lines := []string{
		fmt.Sprintf("%s to two receivers, %.0f s", thousands(demoRecords)+" log lines", elapsed.Seconds()), "",
		fmt.Sprintf("  delivered  %s %s", bar(float64(r.Delivered)/demoRecords, demoBar), thousands(r.Delivered)), "",
		fmt.Sprintf("  %-6s  %-*s  %-9s  %9s  %10s  %9s", "worker", demoBar+5, "window", "state",
			"in flight", "round trip", "delivered"),
	}
	for _, w := range r.Workers {
		lines = append(lines,
			fmt.Sprintf("  %-6s  %s %4.0f  %-9s  %9d  %10s  %9s", d.name(w.Name), bar(w.Window/demoWindow, demoBar),
				w.Window, w.State, w.InFlight, seconds(w.RoundTrip), thousands(int64(w.Delivered))))
	}
	lines = append(lines, "")
	for _, w := range r.Workers {
		short, _, _ := strings.Cut(strings.ReplaceAll(w.Reason, "\n", " "), " (") // explain has the rest
		lines = append(lines, "  "+d.name(w.Name)+": "+short)
	}
	return append(lines, "", "  "+d.act)
}

func (d *play) result(err error) demoResult {
	r := d.engine.Status().Routes[0]
	out := demoResult{OK: err == nil, Records: demoRecords, Bound: r.ReplayBoundBytes}
	out.Seconds = time.Since(d.began).Round(time.Millisecond).Seconds()
	out.routeResult = result(d.engine.Status(), 0, nil).Pipelines[0]
	out.Lost, out.Repeated = d.tally.Count()
	out.Again = d.tally.Recognised()
	if err != nil {
		out.Error = err.Error()
	}
	for _, w := range r.Workers {
		out.Workers = append(out.Workers, workerResult{d.name(w.Name), w.Delivered, w.Failed + w.TimedOut})
	}
	return out
}

func (d *play) end() string {
	out := d.result(nil)
	const form = "\nlost %s, repeated %s of %s records, counted at the receivers\n(%.0f s, one " +
		"of them slow, one down for 5 s; %s requests were repeated, and recognised by their " +
		"Idempotency-Key)\n"
	return fmt.Sprintf(form, thousands(int64(out.Lost)), thousands(int64(out.Repeated)),
		thousands(demoRecords), out.Seconds, thousands(int64(out.Again)))
}
