package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Exit codes. See docs/cli.md.
const (
	exitOK         = 0
	exitUnfinished = 1 // the work could not be finished; the state directory has the progress
	exitUsage      = 2 // the command line or the config is wrong; nothing was started
)

// program is the command line with its external dependencies, such as the arrival of signals. Tests
// replace these.
type program struct {
	components []stream.Component
	commands   []*cobra.Command
	started    time.Time
	files      vfs.FS // file system of the state directory
	assemble   func(c engine.Config, o engine.Options) (runner, error)
	notify     func() (signals <-chan os.Signal, stop func())
	manager    func(log *slog.Logger) *serviceManager
	stopping   time.Duration // maximum time to wait for the engine after a second signal
}

// runner is the part of an engine.Engine that commands use.
type runner interface {
	Run(ctx context.Context) error
	Drain()
	Reload(ctx context.Context) error
	Ping(ctx context.Context) error
	Status() engine.Status
}

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// execute runs one command line and returns the exit code. An error is printed once, on stderr.
func (p *program) execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := p.root()
	results, out := &standardOutput{w: stdout}, newOutput(stderr)
	defer out.flush(flushTimeout)
	root.SetArgs(append([]string{}, args...)) // nil would stand for os.Args
	root.SetIn(stdin)
	root.SetOut(results)
	root.SetErr(out)
	addCompletion(root)
	err := strayed(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err == nil {
		err = results.err()
	}
	if err == nil {
		return exitOK
	}
	printError(out, wantsJSON(args), err)
	return exitCode(err)
}

// addCompletion adds cobra's command completion, whose output goes to the current output of root.
// Cobra itself would print help for an unknown shell, without an error.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd.Runnable() {
		return // an embedder's own command
	}
	group(cmd).DisableFlagsInUseLine = true
	for _, shell := range cmd.Commands() {
		shell.Args = nothing
	}
}

// strayed returns an error if the arguments ask for help about an unknown subcommand. For such
// arguments, cobra itself would print the help of the parent command.
func strayed(root *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	} else if !slices.Contains(args, "--help") && !slices.Contains(args, "-h") {
		return nil
	}
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") || rest[0] == "help" {
		return nil // there is no error, or cobra reports it
	}
	return unknownCommand(cmd, rest[0])
}

func exitCode(err error) int {
	if _, ok := errors.AsType[*UsageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitUsage
	}
	return exitUnfinished
}

func (p *program) root() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "penstock",
		Short: "Deliver data at the pace its receivers can bear, and lose none of it",
		Long: `Penstock delivers data at the pace its receivers can bear, and loses none of it. It
reads files, tables, brokers and requests, and delivers batches to many workers under
adaptive flow control. A checkpoint lets it resume after a crash. Records that a
receiver refuses are kept as dead letters.

A config, a YAML file, describes the pipelines. Begin with one that works:

    penstock validate examples/quickstart/penstock.yaml    # check and print it
    penstock run --once examples/quickstart/penstock.yaml  # deliver

Exit codes: 0 done, 1 could not be finished, 2 wrong command line or config.`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return printVersion(cmd.OutOrStdout(), false)
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print version, commit and platform")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(p.runCommand(), p.validateCommand(), p.statusCommand(), p.reloadCommand(), p.deadCommand(),
		p.parkedCommand(), bufferCommand(p),
		p.checkpointCommand(), auditCommand(p), p.demoCommand(),
		p.explainCommand(), p.testCommand(), tryCommand(p),
		tapCommand(p), topCommand(p), workerCommand(p), clusterCommand(p))
	root.AddCommand(p.schemaCommand(), generateCommand(), importCommand(), versionCommand())
	omitFlags(root)
	for _, c := range p.commands {
		if c.HasSubCommands() && !c.Runnable() {
			group(c)
		}
		root.AddCommand(c)
	}
	sortCommands(root)
	return root
}

// omitFlags removes "[flags]" from the usage lines of cmd and its subcommands, because these lines
// name the important flags.
func omitFlags(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	for _, c := range cmd.Commands() {
		omitFlags(c)
	}
}

// commandGroups are the groups of commands in the help of the program, with their headings.
var commandGroups = []struct {
	title    string
	commands []string
}{
	{"Write a config:", []string{"validate", "try", "test", "schema", "import"}},
	{"Deliver:", []string{"run", "worker", "reload"}},
	{"Watch:", []string{"status", "top", "tap", "explain"}},
	{"Check and repair:", []string{"dead", "parked", "buffer", "checkpoint", "audit"}},
	{"Get to know it:", []string{"demo", "cluster", "generate"}},
}

// sortCommands assigns most built-in commands to groups. Cobra lists all other commands under a
// heading of its own.
func sortCommands(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(g.commands, c.Name()) {
				c.GroupID = g.title
			}
		}
	}
}

// named returns the name of a command with a space after it, for messages. Examples are "run " and
// "checkpoint show ". For the program itself it returns "".
func named(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath()+" ", " ")
	return name // with a space at its end
}

// needs returns the Args function of a command that needs exactly one argument. The parameter is
// the name of this argument in the error about a missing one.
func needs(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("%sneeds %s: %s", named(cmd), what, cmd.UseLine())
		case len(args) > 1:
			return usagef("%stakes one argument, %s; remove %q", named(cmd), what, args[1])
		}
		return nil
	}
}

func nothing(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%stakes no arguments; remove %q", named(cmd), args[0])
	}
	return nil
}

// group turns cmd into a command that only has subcommands.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := config.Nearest(word, names); near != "" {
		return usagef("there is no command %q; did you mean %q?", named(cmd)+word, named(cmd)+near)
	}
	return usagef("there is no command %q; the commands are "+
		"%s", named(cmd)+word, strings.Join(names, ", "))
}

// flagError returns err in plain words. For an unknown flag, it suggests the most similar one. For
// a wrong value, it contains the value.
func flagError(cmd *cobra.Command, err error) error {
	help := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := wrong.GetFlag()
		kind := cmp.Or(flagKinds[f.Value.Type()], "a "+f.Value.Type())
		return usagef("%s--%s: %q is not %s; %s", named(cmd), f.Name, wrong.GetValue(), kind, help)
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return usagef("%s: %v; %s", strings.TrimSpace(named(cmd)), err, help)
	}
	word := unknown.GetSpecifiedName()
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := config.Nearest(word, names); near != "" {
		return usagef("%shas no flag --%s; did you mean --%s?", named(cmd), word, near)
	}
	return usagef("%shas no flag --%s; %s", named(cmd), word, help)
}

// flagKinds describes the values of flags by their type.
var flagKinds = map[string]string{
	"duration":      "a duration such as 200ms, 5s or 1h30m",
	"bool":          "true or false",
	"int":           "a whole number",
	"int64":         "a whole number",
	"float64":       "a number",
	"intSlice":      "a list of whole numbers such as 2,10",
	"durationSlice": "a list of durations such as 50ms,5s",
	"uint16":        "a whole number from 0",
	"uint64":        "a whole number from 0",
}
