// Command penstock delivers data at the pace its receivers can bear, and loses none of it.
//
// It holds the command line: one file a subcommand. What runs is package pipeline; what a config may say is internal/config.
// Nothing here decides about delivery.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/pipeline"
)

// started is when the process started, as near as Go lets a program see it: `seconds` of a run counts from here.
var started = time.Now()

func main() {
	if os.Getenv("GOGC") == "" {
		beginPace()
	}
	p := program{
		components: all.Components(),
		started:    started,
		load: func(path string, o pipeline.Options) (engine, error) {
			return pipeline.Load(path, o)
		},
		notify: func() (<-chan os.Signal, func()) {
			c := make(chan os.Signal, 2)
			signal.Notify(c, os.Interrupt, syscall.SIGTERM)
			return c, func() { signal.Stop(c) }
		},
	}
	os.Exit(p.execute(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
