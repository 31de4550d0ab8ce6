// Command manpages writes the man pages of penstock, one for each command, into a directory.
//
//	go run ./internal/manpages DIR
//
// The text of a page is that of --help. The environment variable SOURCE_DATE_EPOCH sets the date of
// the pages, in seconds since 1970.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/internal/lab/command"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manpages DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

// write writes the pages into dir, which must exist.
func write(dir string) error {
	p := cli.Program{Components: all.Components(), Commands: command.Commands()}
	root := p.Command()
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{
		Section: "1", Source: "Penstock", Manual: "Penstock",
	}, dir)
}
