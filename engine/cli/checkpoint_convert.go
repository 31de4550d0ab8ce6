package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/vfs"
)

// checkpointConvert returns the command that converts a checkpoint for an earlier program.
func checkpointConvert(p *program) *cobra.Command {
	format := uint16(checkpoint.Format)
	cmd := &cobra.Command{
		Use:   "convert CONFIG|STATE --format N",
		Short: "Write the checkpoint for an earlier penstock",
		Long: fmt.Sprintf(`Convert rewrites the checkpoint in an older format, so that an earlier
penstock can continue from it. A program reads its own format and all older ones, so an
upgrade needs no conversion. The earlier program names the format that it reads in its
error message. This program writes the formats %d to %d.

It refuses a checkpoint that the format cannot represent. Stop the running penstock
first. A copy of the checkpoint is kept.`, checkpoint.OldestFormat, checkpoint.Format),
		Example: "  penstock checkpoint convert --format 2 ./state",
		Args:    needs("a config or a state directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("format") {
				return usagef("checkpoint convert needs --format; the error message of the " +
					"earlier program has the number")
			}
			if err := checkpoint.CheckFormat(format); err != nil {
				return usagef("checkpoint convert: --format: %v", err)
			}
			return withLockedState(p, args[0], func(dir vfs.Dir) error {
				aside, err := checkpoint.Convert(dir, format)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(),
					"the checkpoint now has format %d; the previous one is kept as %s\n",
					format, aside)
				return err
			})
		},
	}
	cmd.Flags().Uint16Var(&format, "format", format, "format to write")
	return cmd
}
