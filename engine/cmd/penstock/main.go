// Command penstock delivers data at the pace its receivers can bear, and loses none of it.
package main

import (
	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/internal/lab/command"
)

func main() { program().Main() }

func program() cli.Program {
	return cli.Program{Components: all.Components(), Commands: command.Commands()}
}
