package main

import "github.com/spf13/cobra"

// newSimCommand holds the simulators.
func newSimCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "sim",
		Short: "Simulate flow control",
		Long: `Sim runs the simulators that the project's claims are measured with. They are
exact: the same seed gives the same figures.`,
	})
	cmd.AddCommand(newSimFlowCommand())
	return cmd
}
