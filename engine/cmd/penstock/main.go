// Command penstock delivers data from sources to sinks. It sends no faster than the receivers can
// accept, and loses no data.
package main

import (
	_ "time/tzdata" // for systems without a time zone database

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/internal/lab/command"
)

func main() { program().Main() }

func program() cli.Program {
	return cli.Program{Components: all.Components(), Commands: command.Commands()}
}
