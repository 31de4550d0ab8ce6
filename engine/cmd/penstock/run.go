package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/engine/internal/manifest"
	"github.com/penstock-io/penstock/engine/pipeline"
	"github.com/penstock-io/penstock/supervise"
)

// progressEvery is how often a run says how far it is.
const progressEvery = 5 * time.Second

// errStoppedAtOnce is the cause of a run that two signals ended.
var errStoppedAtOnce = errors.New("stopped at once by a second signal; what was in flight will be delivered again at the next start")

type runFlags struct {
	once, json          bool
	stall               time.Duration
	logFormat, logLevel string
	admin, manifest     string
}

func (p *program) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [--once] [--json] CONFIG",
		Short: "Run the pipelines of a config",
		Long: `Run reads the config, refuses it whole if anything in it is wrong, and then
delivers until it is told to stop. With --once it ends when everything that is
there now has been delivered.

SIGINT (Ctrl-C) or SIGTERM stops it: it reads nothing more, finishes what is in
flight (each route within its ` + "`drain:`" + `, 30s by default) and leaves a checkpoint. A
second signal stops it at once. Whatever ends it, kill -9 and a power cut
included, the next start goes on from the checkpoint.

Progress and logs go to stderr, the summary to stdout. With --json the summary
is one line of JSON instead; docs/cli.md explains its fields.`,
		Example: `  penstock run --once examples/quickstart/penstock.yaml
  penstock run --once --json penstock.yaml | tail -1
  penstock run --log-format json /etc/penstock.yaml`,
		DisableFlagsInUseLine: true,
		Args:                  needs("the path of a config"),
		RunE:                  func(cmd *cobra.Command, args []string) error { return p.run(cmd, args[0], f) },
	}
	cmd.Flags().BoolVar(&f.once, "once", false, "end when everything that is there now has been delivered")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the summary as one line of JSON")
	cmd.Flags().DurationVar(&f.stall, "stall", 5*time.Minute, "with --once: give up after so long without a delivery while data waits")
	cmd.Flags().StringVar(&f.admin, "admin", "", "where the admin pages are, in place of the config: `HOST:PORT` on loopback, or off")
	cmd.Flags().StringVar(&f.manifest, "manifest", "", "with --once: write what was read of each file, with hashes, into this file")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func (p *program) run(cmd *cobra.Command, path string, f runFlags) error {
	if f.stall <= 0 {
		return usagef("run: --stall is %v; it must be above zero", f.stall)
	}
	if cmd.Flags().Changed("stall") && !f.once {
		return usagef("run: --stall belongs to --once; without it a run waits as long as it takes")
	}
	stderr := cmd.ErrOrStderr()
	if f.once {
		if view := terminal(stderr); view != nil {
			stderr = view // logs stand above the progress
		}
	}
	log, err := logger(stderr, f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	o := pipeline.Options{Components: p.components, Once: f.once, Stall: f.stall, Log: log}
	if f.admin != "" {
		o.Admin = &config.Admin{Address: f.admin}
		if err := o.Admin.Check(); err != nil {
			return usagef("run: --admin: %v", err)
		}
	}
	var file *manifest.File
	if f.manifest != "" {
		if !f.once {
			return usagef("run: --manifest belongs to --once; a run without an end has none")
		}
		o.Manifest = new(manifest.Book)
	}
	e, err := p.load(path, o)
	if err == nil && o.Manifest != nil {
		if file, err = manifest.Create(f.manifest); err != nil {
			return usagef("run: --manifest: %v", err)
		}
	}
	begun := time.Now()
	var snap pipeline.Snapshot
	if err == nil {
		err = p.drive(cmd.Context(), e, f.once, stderr)
		snap = e.Snapshot()
	}
	if file != nil {
		err = errors.Join(err, file.Write(manifestOf(snap, o.Manifest, path, begun, err)))
	}
	switch {
	case f.json:
		if wErr := writeResult(cmd.OutOrStdout(), result(snap, time.Since(p.started), err)); wErr != nil {
			return errors.Join(err, wErr)
		}
	case e != nil:
		if _, wErr := io.WriteString(cmd.OutOrStdout(), summary(snap, err)); wErr != nil {
			return errors.Join(err, fmt.Errorf("write the summary: %w", wErr))
		}
	}
	return err
}

func manifestOf(s pipeline.Snapshot, book *manifest.Book, config string, begun time.Time, err error) *manifest.Manifest {
	m := &manifest.Manifest{
		Version: manifest.Version, OK: err == nil, Config: config, Program: pipeline.Version(),
		Begun: begun.UTC(), Ended: time.Now().UTC(), Routes: []manifest.Account{},
	}
	if err != nil {
		m.Error = err.Error()
	}
	for _, r := range s.Routes {
		m.Routes = append(m.Routes, manifest.Account{
			Pipeline: r.Pipeline, Route: r.Route, ReadRecords: r.ReadRecords, ReadBytes: r.ReadBytes,
			Delivered: r.Delivered, Dead: r.Dead, Dropped: r.Dropped, Partitions: book.Partitions(r.Pipeline, r.Route),
		})
	}
	return m
}

// drive runs e until it ends, turning the first signal into a drain and the second into a stop.
func (p *program) drive(ctx context.Context, e engine, once bool, stderr io.Writer) error {
	signals, stop := p.notify()
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group := supervise.NewGroup(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	group.Go("engine", func(context.Context) error {
		err := errors.New("the engine ended without a result") // what remains if Run panics
		defer func() { ended <- err }()
		err = e.Run(ctx)
		return nil
	})
	view, drawn := stderr.(*screen)
	every := progressEvery
	if drawn {
		every = drawEvery
		defer view.draw(nil)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var seen progressView
	count := 0
	for {
		select {
		case err := <-ended:
			if panicked := group.Wait(); panicked != nil {
				return panicked
			}
			return finalError(ctx, err, once && count > 0, e)
		case s := <-signals:
			if count++; count == 1 {
				fmt.Fprintf(stderr, "penstock: %v: finishing what is in flight; once more stops at once\n", s)
				e.Drain()
			} else {
				cancel(errStoppedAtOnce)
			}
		case <-tick.C:
			if drawn {
				view.draw(seen.lines(e.Snapshot()))
			} else {
				io.WriteString(stderr, progress(e.Snapshot()))
			}
		}
	}
}

// finalError is what the end of a run means: interrupted finite work is not done, unless it was just finished.
func finalError(ctx context.Context, err error, interrupted bool, e engine) error {
	if errors.Is(context.Cause(ctx), errStoppedAtOnce) {
		return errStoppedAtOnce
	}
	if err != nil || !interrupted {
		return err
	}
	for _, r := range e.Snapshot().Routes {
		if r.Health != "finished" {
			return errors.New("stopped by a signal before everything was delivered; the next run goes on from the checkpoint")
		}
	}
	return nil
}

func logger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	switch level {
	case "debug", "info", "warn", "error":
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, usagef("run: --log-level: %v", err)
		}
	default:
		return nil, usagef("run: --log-level is %q; it is debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, usagef("run: --log-format is %q; it is text or json", format)
}
