package main

import "github.com/spf13/cobra"

// newSimCommand holds the simulators.
func newSimCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "sim",
		Short: "Simulate flow control, backoff and shared media",
		Long: `Sim runs the simulators that the project's claims are measured with. They are
exact: the same seed gives the same figures. docs/which-backoff.md and
docs/flow-control.md show what they say, with the commands that print it again.`,
		Example: `  penstock sim flow docs/scenarios/*.yaml
  penstock sim backoff --clients 10,100 --policy full --policy recommended
  penstock sim csma --stations 2,10,64 --json`,
	})
	cmd.AddCommand(newSimFlowCommand(), newSimBackoffCommand(), newSimCSMACommand())
	return cmd
}
