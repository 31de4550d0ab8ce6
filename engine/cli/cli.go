// Package cli is the penstock command line as a library. To make a program with additional
// components, call [Main]. To make one with additional commands, run a [Program].
//
// The package parses arguments and prints results. Package engine delivers the data.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/stream"
)

// started is approximately the start time of the process. The field `seconds` in the result of a
// run counts from this time.
var started = time.Now()

// Main runs the command line in os.Args with the given components and exits the process. It is
// short for Program{Components: components}.Main().
func Main(components ...stream.Component) { Program{Components: components}.Main() }

// Program is a penstock command line. It may be copied. Call only one of its methods, and call it
// only once, because each [cobra.Command] in Commands keeps the state of its last run.
type Program struct {
	// Components are the sources, processors and sinks that a config may name. Package
	// engine/connector/all has the built-in ones.
	Components []stream.Component

	// Commands are added to the built-in commands. Their names must differ from those of the
	// built-in commands. A command that returns a [UsageError], or an error in a config, ends the
	// process with exit code 2. Any other error ends it with exit code 1.
	Commands []*cobra.Command
}

// Main runs the command line in os.Args and exits the process.
func (p Program) Main() {
	if os.Getenv("GOGC") == "" {
		beginPace()
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		followCgroup(os.DirFS("/"), debug.SetMemoryLimit)
	}
	os.Exit(p.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run runs a command line, which must not include the name of the program. It returns the exit
// code: 0 if the work is done, 1 if it could not be finished, and 2 if the command line or the
// config is wrong. It prints errors and the log on stderr. If stderr blocks or breaks, Run
// continues, and lines of the log are dropped.
//
// While the command run or worker is running, SIGINT and SIGTERM drain the engine, and a second one
// stops it. SIGHUP reloads the config. With --once or -c, SIGHUP drains the engine instead. These
// commands also report to systemd if NOTIFY_SOCKET is set.
func (p Program) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return p.program().execute(ctx, args, stdin, stdout, stderr)
}

// Command returns the root of the command tree. Use it to list commands and flags, for example in
// documentation or tests. To run a command, use [Program.Run].
func (p Program) Command() *cobra.Command { return p.program().root() }

func (p Program) program() *program {
	return &program{
		components: p.Components,
		commands:   p.Commands,
		started:    started,
		files:      osfs.New(),
		assemble: func(c engine.Config, o engine.Options) (runner, error) {
			e, err := engine.New(c, o)
			if err != nil {
				return nil, err
			}
			return e, nil
		},
		notify: func() (<-chan os.Signal, func()) {
			c := make(chan os.Signal, 2)
			signal.Notify(c, os.Interrupt, syscall.SIGTERM)
			if !signal.Ignored(syscall.SIGHUP) { // otherwise nohup has started the process
				signal.Notify(c, syscall.SIGHUP)
			}
			return c, func() { signal.Stop(c) }
		},
		manager:  serviceManagerOf,
		stopping: 5 * time.Second,
	}
}

// keepPipes prevents SIGPIPE from killing the process when the reader of its stdout or stderr ends.
// A write then returns an error instead. This stays in effect until the process ends. Otherwise the
// last write could kill the process, and the exit code would be that of the signal. Child processes
// are not affected.
var keepPipes = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })

func isHangup(s os.Signal) bool { return s == syscall.SIGHUP }

// UsageError is the error for a wrong command line. The process exits with code 2.
type UsageError struct{ Message string }

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }
