package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/flume"
)

// maxAgentFile is how large a Flume configuration may be.
const maxAgentFile = 4 << 20

// importResult is what `import flume --json` prints: the notes, one a line, then this.
type importResult struct {
	OK       bool   `json:"ok"` // every route has a source and a sink
	Agent    string `json:"agent"`
	Out      string `json:"out,omitempty"`
	Lost     int    `json:"lost"`
	Differs  int    `json:"differs"`
	Needless int    `json:"needless"`
	Carried  int    `json:"carried"` // files that go on where Flume stood, or that it had finished
}

type importNote struct {
	Line   int    `json:"line"` // 0: the whole
	Key    string `json:"key"`
	Weight string `json:"weight"`
	Text   string `json:"text"`
}

type importFlags struct {
	agent, out string
	json       bool
}

func importCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "import",
		Short: "Make a config of another program's",
		Long: `Import reads another program's configuration and prints one of penstock that does the
same. What cannot be carried over is named with its place, and nothing is guessed:
what does not exist here is left out, so that the config does not pass validate until
a person has decided.`,
		Example: "  penstock import flume /etc/flume/agent.conf > penstock.yaml",
	})
	cmd.AddCommand(importFlumeCommand())
	return cmd
}

func importFlumeCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "flume AGENT.conf",
		Short: "Make a config of a Flume agent's",
		Long: `Import flume reads the properties file of a Flume 1.11 agent and prints a config that
does the same: sources spooldir and TAILDIR (and exec with tail -F), channels memory
and file, sinks http, file_roll and null, sink groups, the interceptor regex_filter.

What cannot be carried over is named on stderr, with its line: "lost" is not there,
"differs" works in another way, "needless" has the same effect unsaid. A route whose
source or sink does not exist here is left without one, and the exit code is 1.

With --out, and where no checkpoint is yet, one is made beside the config, of the position
files and tracker directories that Flume has left, so that each file goes on where Flume
stood. What comes twice all the same is said. Run it where the agent ran, in its folder.

How to move without losing a record: stop the agent's sources, let its channels run
empty, stop the agent, import, read the config, ` + "`penstock validate`" + ` it, start.`,
		Example: `  penstock import flume /etc/flume/agent.conf > penstock.yaml
  penstock import flume agent.conf --agent a1 --out penstock.yaml`,
		DisableFlagsInUseLine: true,
		Args:                  needs("the path of a Flume agent's properties file"),
		RunE:                  func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	cmd.Flags().StringVar(&f.agent, "agent", "", "which agent of the file; needed where it declares several")
	cmd.Flags().StringVar(&f.out, "out", "", "file to write, which must not exist; default: standard output")
	cmd.Flags().BoolVar(&f.json, "json", false, "print what is said as JSON, one object a line; needs --out")
	return cmd
}

func (f importFlags) run(cmd *cobra.Command, path string) error {
	if f.json && f.out == "" {
		return usagef("import flume: --json says what was not carried over on standard output, so the config needs --out FILE")
	}
	text, err := readAgent(path)
	if err != nil {
		return err
	}
	r, err := flume.Convert(text, f.agent)
	if err != nil {
		return usagef("import flume: %s: %v", path, err)
	}
	if err := f.write(cmd.OutOrStdout(), r.Config); err != nil {
		return err
	}
	carried, err := f.carry(&r)
	if err != nil {
		return err
	}
	if err := f.say(cmd, r, carried); err != nil {
		return err
	}
	if !r.Runnable {
		return fmt.Errorf("import flume: %s: something that the agent reads or writes does not exist here (see above): complete the "+
			"config, then run penstock validate on it", path)
	}
	return nil
}

func readAgent(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", usagef("import flume: %v", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxAgentFile+1))
	if err != nil {
		return "", usagef("import flume: %v", err)
	}
	if len(text) > maxAgentFile {
		return "", usagef("import flume: %s is larger than %d bytes: it is no agent's properties file", path, maxAgentFile)
	}
	return string(text), nil
}

func (f importFlags) write(stdout io.Writer, config string) (err error) {
	w := stdout
	if f.out != "" {
		file, createErr := os.OpenFile(f.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // endpoints may hold passwords
		if createErr != nil {
			return usagef("import flume: --out: %v", createErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		w = file
	}
	if _, err := io.WriteString(w, config); err != nil {
		return fmt.Errorf("import flume: write the config: %w", err)
	}
	return nil
}

// say prints the notes: for a person on stderr, as JSON on stdout.
func (f importFlags) say(cmd *cobra.Command, r flume.Result, carried int) error {
	result := importResult{OK: r.Runnable, Agent: r.Agent, Out: f.out, Carried: carried}
	for _, n := range r.Notes {
		switch n.Weight {
		case flume.Lost:
			result.Lost++
		case flume.Differs:
			result.Differs++
		case flume.Needless:
			result.Needless++
		}
		if f.json {
			if err := writeResult(cmd.OutOrStdout(), importNote{n.Line, n.Key, string(n.Weight), n.Text}); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(cmd.ErrOrStderr(), n)
	}
	if f.json {
		return writeResult(cmd.OutOrStdout(), result)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "agent %s: %d lost, %d differ, %d needless\n", r.Agent, result.Lost, result.Differs, result.Needless)
	return nil
}
