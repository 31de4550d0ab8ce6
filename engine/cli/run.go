package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/manifest"
	"github.com/penstock-io/penstock/engine/web"
	"github.com/penstock-io/penstock/stream"
)

// progressEvery is the interval at which a run prints its progress.
const progressEvery = 5 * time.Second

// errStoppedAtOnce is the cause of a run that two signals ended.
var errStoppedAtOnce = errors.New("stopped at once by a second signal; in-flight batches will " +
	"be delivered again at the next start, if their source can read them again")

type runFlags struct {
	once, json, watch   bool
	stall               time.Duration
	logFormat, logLevel string
	admin, manifest     string
	config              string // text of a config
	source              string // of the pipelines, as YAML; "" if the config contains it
}

func (p *program) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [--once] [--json] CONFIG|-c TEXT",
		Short: "Run the pipelines of a config",
		Long: `Run reads the config, and starts nothing if any part of it is invalid. Then it
delivers until it is stopped. With --once it ends when all data that exists now has
been delivered.

SIGINT (Ctrl-C) or SIGTERM stops it: it stops reading, finishes the in-flight
batches (each route within its ` + "`drain:`" + `, 30s by default) and leaves a checkpoint. A
second signal stops it at once. SIGHUP reloads the config, as ` + "`penstock reload`" + `
does; with --watch, so does a change of its file. With --once or -c there is nothing
to reload, and SIGHUP stops it. After any end, including kill -9 and power loss, the
next start resumes from the checkpoint.

Progress and logs go to stderr, the summary to stdout. With --json the summary
is one line of JSON instead; docs/cli.md explains its fields. With the sink stdout,
only records go to stdout, and the summary goes to stderr.`,
		Example: `  penstock run --once examples/quickstart/penstock.yaml
  seq 3 | penstock run -c 'pipelines: {p: {source: stdin, sink: stdout}}'
  penstock run --once --json penstock.yaml | tail -1
  penstock run --log-format json /etc/penstock.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("config") {
				return needs("the path of a config")(cmd, args)
			}
			if len(args) > 0 {
				return usagef("run: give a config either with -c or as a path; remove %q", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, args, f) },
	}
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "`TEXT` of the config, in place of a file")
	cmd.Flags().BoolVar(&f.once, "once", false,
		"end when all data that exists now has been delivered")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the summary as one line of JSON")
	cmd.Flags().BoolVar(&f.watch, "watch", false, "reload the config when its file changes")
	cmd.Flags().DurationVar(&f.stall, "stall", 5*time.Minute, "with --once: give up after this "+
		"time without a delivery while data waits")
	cmd.Flags().StringVar(&f.admin, "admin", "", "address of the admin pages, in place of the "+
		"config: `HOST:PORT` on loopback, or off")
	cmd.Flags().StringVar(&f.manifest, "manifest", "", "with --once: write the ranges read from "+
		"each file, with hashes, into this file")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "text", "text or json")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// check returns an error if flags contradict each other. stallGiven means that --stall is on the
// command line. hasPath means that the config is a file, and not the text of -c.
func (f *runFlags) check(stallGiven, hasPath bool) error {
	switch {
	case f.stall <= 0:
		return usagef("run: --stall is %v; it must be above zero", f.stall)
	case stallGiven && !f.once:
		return usagef("run: --stall needs --once; without it a run waits without limit")
	case f.watch && f.once:
		return usagef("run: --watch cannot be combined with --once, which keeps its config")
	case f.watch && !hasPath:
		return usagef("run: --watch needs the path of a config; -c has none")
	case f.manifest != "" && !f.once:
		return usagef("run: --manifest needs --once; a continuous run has no manifest")
	}
	return nil
}

func (p *program) run(cmd *cobra.Command, args []string, f runFlags) error {
	if err := f.check(cmd.Flags().Changed("stall"), len(args) > 0); err != nil {
		return err
	}
	keepPipes()
	var watched *watchedConfig
	if f.watch {
		watched = watchConfig(args[0])
	}
	c, configErr := p.config(args, f)
	con, err := newConsole(cmd.ErrOrStderr(), f.logFormat, f.logLevel, f.once && !writesStdout(&c))
	if err != nil {
		return err
	}
	o := engine.Options{Once: f.once, Stall: f.stall, Log: con.log, LogLevel: con.level, Dashboard: web.Handler()}
	admin := config.Admin{Address: f.admin}
	if err := admin.Check(); err != nil {
		return usagef("run: --admin: %v", err)
	}
	var file *manifest.File
	if f.manifest != "" {
		o.Manifest = new(manifest.Totals)
	}
	var e runner
	if err = configErr; err == nil {
		if len(args) > 0 {
			o.Load = func() (engine.Config, error) {
				c, err := p.config(args, f)
				return withAdmin(c, admin), err
			}
		}
		e, err = p.assemble(withAdmin(c, admin), o)
	}
	if err == nil && o.Manifest != nil {
		if file, err = manifest.Create(f.manifest); err != nil {
			return usagef("run: --manifest: %v", err)
		}
	}
	begun := time.Now()
	var end engine.Status
	if err == nil {
		err = p.drive(cmd.Context(), e, driven{
			once: f.once, watched: watched, reloads: len(args) > 0 && !f.once,
			manager: p.manager(con.log),
		}, con)
		end = e.Status()
	}
	if file != nil {
		err = errors.Join(err, file.Write(manifestOf(end, o.Manifest, c.Path, begun, err)))
	}
	out := cmd.OutOrStdout()
	if writesStdout(&c) {
		out = cmd.ErrOrStderr()
	}
	write := func() error { return nil } // do not print a summary for an invalid config
	switch {
	case f.json || con.json:
		write = func() error { return writeResult(out, result(end, time.Since(p.started), err)) }
	case e != nil:
		write = func() error {
			if _, err := io.WriteString(out, summary(end, err)); err != nil {
				return fmt.Errorf("write the summary: %w", err)
			}
			return nil
		}
	}
	return errors.Join(err, con.finish(write))
}

// config reads the config that args or flags name.
func (p *program) config(args []string, f runFlags) (engine.Config, error) {
	if len(args) == 0 {
		return engine.Parse([]byte(f.config), p.components...)
	}
	c, err := config.Load(args[0], config.LoadOptions{Components: p.components, Source: f.source})
	if err != nil {
		return engine.Config{}, err
	}
	return *c, nil
}

// writesStdout reports whether a sink of the config writes to standard output.
func writesStdout(c *engine.Config) bool {
	for _, r := range c.Routes() {
		if user, ok := r.Sink.Options.(stream.ExclusiveUser); ok &&
			slices.Contains(user.Exclusive(), stream.StandardOutput) {
			return true
		}
	}
	return false
}

// withAdmin returns c. If admin is set, it replaces the admin address of c.
func withAdmin(c engine.Config, admin config.Admin) engine.Config {
	if admin.Address != "" {
		c.Admin = admin
	}
	return c
}

func manifestOf(s engine.Status, book *manifest.Totals, config string, begun time.Time,
	err error) *manifest.Manifest {
	m := &manifest.Manifest{
		Version: manifest.Version, OK: err == nil, Config: config, Program: s.Program,
		Begun: begun.UTC(), Ended: time.Now().UTC(), Routes: []manifest.Account{},
	}
	if err != nil {
		m.Error = stream.MaskURLs(err.Error())
	}
	for _, r := range s.Routes {
		m.Routes = append(m.Routes, manifest.Account{
			Pipeline: r.Pipeline, Route: r.Name, ReadRecords: r.ReadRecords, ReadBytes: r.ReadBytes,
			Delivered: r.Delivered, Dead: r.Dead, Dropped: r.Dropped, Parked: r.Parked,
			Partitions: book.Partitions(r.Pipeline, r.Name),
		})
	}
	return m
}

// finalError returns the error of a run that has ended with err. interrupted means that a signal
// has ended a run that would otherwise have ended by itself. In this case finalError returns an
// error, unless all routes had finished.
func finalError(ctx context.Context, err error, interrupted bool, e runner) error {
	if errors.Is(context.Cause(ctx), errStoppedAtOnce) {
		return errStoppedAtOnce
	}
	if err != nil || !interrupted {
		return err
	}
	for _, r := range e.Status().Routes {
		if r.Health != "finished" {
			return errors.New("stopped by a signal before everything was delivered; the next " +
				"run resumes from the checkpoint")
		}
	}
	return nil
}

// logger returns a logger, and its level, which can be changed later.
func logger(w io.Writer, format, level string) (*slog.Logger, *slog.LevelVar, error) {
	l := new(slog.LevelVar)
	known := slices.Contains([]string{"debug", "info", "warn", "error"}, level)
	if !known || l.UnmarshalText([]byte(level)) != nil {
		return nil, nil, usagef("run: --log-level is %q; want debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), l, nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), l, nil
	}
	return nil, nil, usagef("run: --log-format is %q; want text or json", format)
}
