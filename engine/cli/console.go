package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// console writes to stderr: the logs, progress and notices of a command that runs an engine.
type console struct {
	w     io.Writer
	view  *screen // draws the progress; nil if the progress is not drawn
	log   *slog.Logger
	level *slog.LevelVar // level of log
	json  bool           // write every line as JSON

	interrupted bool // a signal has arrived
}

// newConsole returns the console of a command. If draws is true, stderr is a terminal and the
// format is not json, the console draws the progress and updates it in place.
func newConsole(stderr io.Writer, format, level string, draws bool) (*console, error) {
	c := &console{w: stderr, json: format == "json"}
	if draws && !c.json {
		if c.view = terminal(stderr); c.view != nil {
			c.w = c.view // logs are written above the progress
		}
	}
	var err error
	if c.log, c.level, err = logger(c.w, format, level); err != nil {
		return nil, err
	}
	if out, ok := stderr.(*output); ok {
		out.reportBy(func(n int) []byte {
			var line bytes.Buffer
			if log, _, err := logger(&line, format, "info"); err == nil {
				log.Warn("log lines dropped: stderr was blocked", "lines", n)
			}
			return line.Bytes()
		})
	}
	return c, nil
}

// notice prints line. If every line must be JSON, it logs msg with args instead.
func (c *console) notice(line, msg string, args ...any) {
	if c.json {
		c.log.Info(msg, args...)
		return
	}
	_, _ = io.WriteString(c.w, line+"\n") // continue even if the output is closed
}

// progress prints the progress of the engine.
func (c *console) progress(s engine.Status) {
	if !c.json {
		_, _ = io.WriteString(c.w, progress(s))
		return
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		c.log.Info("progress", "pipeline", r.Pipeline, "route", r.Name, "health", r.Health, "read", r.ReadRecords,
			"delivered", r.Delivered, "dead", r.Dead, "dropped", r.Dropped, "in_flight", r.InFlight,
			"waiting", r.Waiting)
	}
}

// finish calls write, which writes the summary to stdout. If stdout blocks after a signal, finish
// waits at most flushTimeout.
func (c *console) finish(write func() error) error {
	if !c.interrupted {
		return write()
	}
	written := make(chan error, 1)
	supervise.NewGroup(context.Background()).Go("stdout", func(context.Context) error {
		written <- write()
		return nil
	})
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case err := <-written:
		return err
	case <-timer.C:
		return errors.New("write the summary: stdout is blocked")
	}
}

// wantsJSON reports whether args ask for JSON on stderr. It must also work for args that are not a
// valid command line, because the error about them must be JSON.
func wantsJSON(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	for i, a := range args {
		value, ok := strings.CutPrefix(a, "--log-format=")
		if ok && value == "json" || a == "--log-format" && i+1 < len(args) && args[i+1] == "json" {
			return true
		}
	}
	return false
}

// printError prints the error with which a command ends.
func printError(w io.Writer, asJSON bool, err error) {
	text := stream.MaskURLs(err.Error())
	if !asJSON {
		_, _ = io.WriteString(w, "penstock: "+text+"\n")
		return
	}
	slog.New(slog.NewJSONHandler(w, nil)).Error("command failed", "exit_code", exitCode(err), "error", text)
}
