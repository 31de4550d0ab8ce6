package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/stream"
)

// This is the main function of a program with every command of penstock and with its own
// components. Most programs also pass all.Components().
func ExampleMain() {
	cli.Main(stream.Component{
		Role: stream.SinkRole, Name: "mine", New: func(any, stream.Host) (any, error) {
			return nil, errors.New("not written yet")
		},
	})
}

// A program may add commands.
func ExampleProgram() {
	hello := &cobra.Command{
		Use: "hello NAME", Short: "Say hello",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &cli.UsageError{Message: "hello needs a name"}
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "hello,", args[0])
			return err
		},
	}
	p := cli.Program{Commands: []*cobra.Command{hello}}
	code := p.Run(context.Background(), []string{"hello", "world"}, strings.NewReader(""), os.Stdout, os.Stderr)
	fmt.Println("exit code", code)
	// Output:
	// hello, world
	// exit code 0
}
