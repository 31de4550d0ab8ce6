package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/flume"
	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/engine/internal/migrate/filebeat"
	"github.com/penstock-io/penstock/engine/internal/migrate/fluentbit"
	"github.com/penstock-io/penstock/engine/internal/migrate/vector"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/vfs"
)

// maxImported is the maximum size of a configuration that is imported, in bytes.
const maxImported = 4 << 20

// importResult is the last line of `import --json`. It follows the notes.
type importResult struct {
	OK       bool   `json:"ok"`              // every route has a source and a sink
	Agent    string `json:"agent,omitempty"` // name of the Flume agent
	Out      string `json:"out,omitempty"`
	Lost     int    `json:"lost"`
	Differs  int    `json:"differs"`
	Unneeded int    `json:"unneeded"`
	Needless int    `json:"needless"` // former name of Unneeded, until 1.0
	Carried  int    `json:"carried"`  // files that resume at a position or were finished
}

type importNote struct {
	Line   int    `json:"line"` // 0 if unknown, or if the note is about the whole file
	Key    string `json:"key"`
	Kind   string `json:"kind"`
	Weight string `json:"weight"` // former name of Kind, with "needless" for "unneeded", until 1.0
	Text   string `json:"text"`
}

// importer describes the command that imports the configuration of one program.
type importer struct {
	command     string // first word: "flume"
	argument    string // "AGENT.conf"
	needs       string // description of its argument
	short, long string
	example     string
	convert     func(text, path string, f *importFlags) (migrate.Result, error)
}

type importFlags struct {
	importer
	agent, data, out string
	json             bool
}

func importCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "import",
		Short: "Convert a configuration of Flume, Filebeat, Fluent Bit or Vector",
		Long: `Import converts another program's configuration into a penstock config with the same
effect. It reports each setting that it cannot convert, with its place, and never
guesses: a component that it does not convert is left out, and the exit code is 1.

With --out, and if no checkpoint exists, import also converts the positions that the
other program has stored into a checkpoint beside the config, so that each file resumes
at its position. It reports files that are read twice nevertheless. Run it on that
program's machine, after that program has stopped.`,
		Example: `  penstock import flume /etc/flume/agent.conf > penstock.yaml
  penstock import filebeat /etc/filebeat/filebeat.yml --out penstock.yaml`,
	})
	for _, i := range importers {
		cmd.AddCommand(i.cobra())
	}
	return cmd
}

const kindsExplained = `It reports settings that it does not convert on stderr, with their places: "lost" has no
equivalent, "differs" works in a different way, "unneeded" has the same effect without a setting.
If a source or sink is not converted, the config lacks it, and the exit code is 1.
`

var importers = []importer{
	{
		command: "flume", argument: "AGENT.conf",
		needs: "the path of a Flume agent's properties file",
		short: "Convert the configuration of a Flume agent",
		long: `Import flume reads the properties file of a Flume 1.11 agent and prints a config that
has the same effect: sources spooldir and TAILDIR (and exec with tail -F), channels memory
and file, sinks http, file_roll and null, sink groups, the interceptor regex_filter.

` + kindsExplained + `
With --out, and if no checkpoint exists, one is created beside the config, from Flume's
position files and tracker directories. Each file resumes at the position of Flume.
Import reports files that are read twice nevertheless. Run it in the agent's working
directory.

To migrate without losing a record: stop the agent's sources, wait until its channels
are empty, stop the agent, import, read the config, ` + "`penstock validate`" + ` it, start.`,
		example: `  penstock import flume /etc/flume/agent.conf > penstock.yaml
  penstock import flume agent.conf --agent a1 --out penstock.yaml`,
		convert: func(text, _ string, f *importFlags) (migrate.Result, error) {
			return flume.Convert(text, f.agent)
		},
	},
	{
		command:  "filebeat",
		argument: "FILEBEAT.yml",
		needs:    "the path of filebeat.yml",
		short:    "Convert a Filebeat configuration",
		long: `Import filebeat reads a filebeat.yml (7.9 and newer) and prints a config that does the
same: inputs filestream, log and container, outputs Elasticsearch, Kafka, file and
console.

` + kindsExplained + `
With --out, and if no checkpoint exists, one is created beside the config, from the
registry in path.data or --data. Each file resumes at the position of Filebeat, by
inode or fingerprint. Stop Filebeat first.`,
		example: `  penstock import filebeat /etc/filebeat/filebeat.yml --out penstock.yaml
  penstock import filebeat filebeat.yml --data ./data --out penstock.yaml`,
		convert: func(text, path string, f *importFlags) (migrate.Result, error) {
			return filebeat.Convert(text, path, f.data)
		},
	},
	{
		command:  "fluent-bit",
		argument: "FLUENT-BIT.conf",
		needs:    "the path of a Fluent Bit configuration",
		short:    "Convert a Fluent Bit configuration",
		long: `Import fluent-bit reads a configuration of Fluent Bit (1.9 and newer), classic or YAML,
and prints a config that does the same: the input tail, the filters grep, modify and
record_modifier, outputs es, opensearch, loki, http, kafka, file, stdout and null.
Outputs become the routes of the inputs whose tag they match.

` + kindsExplained + `
With --out, and if no checkpoint exists, one is created beside the config, from the
input's DB. Each file resumes at the position of Fluent Bit. Stop Fluent Bit first.`,
		example: `  penstock import fluent-bit /etc/fluent-bit/fluent-bit.conf --out penstock.yaml`,
		convert: func(text, path string, _ *importFlags) (migrate.Result, error) {
			return fluentbit.Convert(text, path)
		},
	},
	{
		command:  "vector",
		argument: "VECTOR.yaml",
		needs:    "the path of a Vector configuration, .yaml, .yml or .toml",
		short:    "Convert a Vector configuration",
		long: `Import vector reads a configuration of Vector (0.20 and newer), .yaml, .yml or .toml, and
prints a config that does the same: the source file, sinks elasticsearch, loki, http,
kafka, clickhouse, file, console and blackhole. Of the transforms, a remap that only
parses JSON is carried over.

` + kindsExplained + `
With --out, and if no checkpoint exists, one is created beside the config, from the
checkpoints in data_dir or --data. Each file resumes at the position of Vector, by the
checksum of its first line. Stop Vector first.`,
		example: `  penstock import vector /etc/vector/vector.yaml --out penstock.yaml`,
		convert: func(text, path string, f *importFlags) (migrate.Result, error) {
			return vector.Convert(text, strings.HasSuffix(path, ".toml"), f.data)
		},
	},
}

func (i importer) cobra() *cobra.Command {
	f := &importFlags{importer: i}
	cmd := &cobra.Command{
		Use:     i.command + " " + i.argument,
		Short:   i.short,
		Long:    i.long,
		Example: i.example,
		Args:    needs(i.needs),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	switch i.command {
	case "flume":
		cmd.Flags().StringVar(&f.agent, "agent", "",
			"name of the agent; required if the file declares several")
	case "filebeat", "vector":
		cmd.Flags().StringVar(&f.data, "data", "",
			"data directory with the stored positions; default: the configured one")
	}
	cmd.Flags().StringVar(&f.out, "out", "",
		"file to write, which must not exist; default: standard output")
	cmd.Flags().BoolVar(&f.json, "json", false,
		"print the notes as JSON, one object per line; needs --out")
	return cmd
}

// name returns the name of the command. Messages begin with it.
func (f *importFlags) name() string { return "import " + f.command }

func (f *importFlags) run(cmd *cobra.Command, path string) error {
	if f.json && f.out == "" {
		return usagef("%s: --json prints the notes on standard output, so the config needs --out "+
			"FILE", f.name())
	}
	text, err := f.read(path)
	if err != nil {
		return err
	}
	r, err := f.convert(text, path, f)
	if err != nil {
		return usagef("%s: %s: %v", f.name(), path, err)
	}
	if err := f.write(osfs.New(), cmd.OutOrStdout(), r.Config); err != nil {
		return err
	}
	carried, unreadable, err := f.carry(&r)
	if err != nil {
		return err
	}
	if err := f.say(cmd, r, carried); err != nil {
		return err
	}
	if !r.Runnable {
		err = fmt.Errorf("%s: %s: a source or sink in it is not converted (see above): complete "+
			"the config, then run penstock validate on it", f.name(), path)
	}
	return errors.Join(err, unreadable)
}

func (f *importFlags) read(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", usagef("%s: %v", f.name(), err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxImported+1))
	if err != nil {
		return "", usagef("%s: %v", f.name(), err)
	}
	if len(text) > maxImported {
		return "", usagef("%s: %s is larger than %d bytes: want %s", f.name(), path, maxImported,
			f.needs)
	}
	return string(text), nil
}

// write writes the config to the file of --out or, without --out, to standard output.
func (f *importFlags) write(files vfs.FS, stdout io.Writer, config string) error {
	if f.out != "" {
		return f.create(files, config)
	}
	if _, err := io.WriteString(stdout, config); err != nil {
		return fmt.Errorf("%s: write the config: %w", f.name(), err)
	}
	return nil
}

// create writes the config to a new file. If this fails, create deletes the file, because the next
// import would refuse to overwrite it.
func (f *importFlags) create(files vfs.FS, config string) (err error) {
	folder, name := filepath.Split(f.out)
	dir, err := files.OpenDir(cmp.Or(folder, "."))
	if err != nil {
		return usagef("%s: --out: %v", f.name(), err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	const mode = 0o600 // endpoints may contain passwords
	file, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return usagef("%s: --out: %v", f.name(), err)
	}
	_, err = io.WriteString(file, config)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: write the config: %w", f.name(), errors.Join(err, dir.Remove(name)))
	}
	return nil
}

// say prints the notes: as text on stderr, or as JSON on stdout.
func (f *importFlags) say(cmd *cobra.Command, r migrate.Result, carried int) error {
	result := importResult{OK: r.Runnable, Agent: agentOf(r.Name), Out: f.out, Carried: carried}
	notes := make(map[migrate.Kind]int)
	for _, n := range r.Notes {
		notes[n.Kind]++
		if !f.json {
			fmt.Fprintln(cmd.ErrOrStderr(), n)
			continue
		}
		out := importNote{n.Line, n.Key, string(n.Kind), formerKind(n.Kind), n.Text}
		if err := writeResult(cmd.OutOrStdout(), out); err != nil {
			return err
		}
	}
	result.Lost, result.Differs = notes[migrate.Lost], notes[migrate.Differs]
	result.Unneeded, result.Needless = notes[migrate.Unneeded], notes[migrate.Unneeded]
	if f.json {
		return writeResult(cmd.OutOrStdout(), result)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d lost, %d differ, %d unneeded; %d files resume at "+
		"their positions\n", r.Name, result.Lost, result.Differs, result.Unneeded, carried)
	return nil
}

// formerKind returns the former name of k.
func formerKind(k migrate.Kind) string {
	if k == migrate.Unneeded {
		return "needless"
	}
	return string(k)
}

// agentOf returns the name of a Flume agent, or "".
func agentOf(name string) string {
	if agent, ok := strings.CutPrefix(name, "agent "); ok {
		return agent
	}
	return ""
}
