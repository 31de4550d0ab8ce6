package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionResult is the line of `version --json`.
type versionResult struct {
	Version  string `json:"version"`            // "devel" if the build recorded none
	Revision string `json:"revision,omitempty"` // commit, if the build recorded it
	Time     string `json:"time,omitempty"`     // time of the commit
	Modified bool   `json:"modified"`           // the checkout had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version [--json]",
		Short: "Print version, commit and platform",
		Long: `Version prints the release, commit, Go version and platform of this program. Include
it in every bug report. For a build from a checkout, the release is a pseudo-version
of Go, such as v0.0.0-20261130165227-dda63a692247, or devel if the build did not record
the commit. "changed" and +dirty mean that the checkout had uncommitted changes.`,
		Example: "  penstock version --json",
		Args:    nothing,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd.OutOrStdout(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}

func printVersion(w io.Writer, asJSON bool) error {
	info, _ := debug.ReadBuildInfo()
	v := versionOf(info)
	if asJSON {
		return writeResult(w, v)
	}
	_, err := fmt.Fprintln(w, v.text())
	return err
}

// versionOf returns the version of the program from info, the information that the Go toolchain has
// recorded in the program. info may be nil.
func versionOf(info *debug.BuildInfo) versionResult {
	v := versionResult{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info == nil {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v versionResult) text() string {
	s := "penstock " + v.Version
	if len(v.Revision) >= 12 {
		s += " (" + v.Revision[:12]
		if v.Modified {
			s += ", changed"
		}
		s += ")"
	}
	return s + ", " + v.Go + ", " + v.Platform
}
