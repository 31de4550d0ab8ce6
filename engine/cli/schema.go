package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/config"
)

func (p *program) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of configs",
		Long: `Schema prints the JSON Schema (draft 2020-12) of the config, made from the options of
every component that this program contains. Editors with YAML support use it to complete
and check a config that begins with this line:

    # yaml-language-server: $schema=penstock.schema.json

The schema covers names, types and values. ` + "`validate`" + ` reports all other errors.`,
		Example: `  penstock schema > penstock.schema.json`,
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := config.JSONSchema(p.components)
			if err != nil {
				return err
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return fmt.Errorf("write the schema: %w", err)
			}
			return nil
		},
	}
}
