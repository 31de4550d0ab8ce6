package journald

import (
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// The values of the option start: where a route without a stored position begins.
const (
	Earliest = "earliest"
	Latest   = "latest"
)

// Options are the options of the source.
type Options struct {
	Units       []string    `yaml:"units" doc:"read only these systemd units, such as nginx.service; empty: all"`
	Identifiers []string    `yaml:"identifiers" doc:"only these syslog identifiers; empty: any"`
	Priority    string      `yaml:"priority" doc:"minimum severity: emerg, alert, crit, err, warning, notice, info or debug"`
	Match       []string    `yaml:"match" doc:"only FIELD=VALUE; values of one field are alternatives"`
	Directory   string      `yaml:"directory" path:"true" doc:"directory of journal files; empty: those of this machine"`
	Start       string      `yaml:"start" enum:"earliest,latest" doc:"where to start at first"`
	Command     []string    `yaml:"command" doc:"[PROGRAM, ARG...] that prints the journal; arguments are appended"`
	Env         []string    `yaml:"env" doc:"environment variables to pass"`
	MaxRecord   stream.Size `yaml:"max_record" doc:"maximum entry size as JSON; longer ones are skipped and counted"`
}

// DefaultOptions returns options that read the whole journal of the machine.
func DefaultOptions() *Options {
	return &Options{
		Start: Earliest, Command: []string{"journalctl"}, Env: []string{"PATH"}, MaxRecord: 1 << 20,
	}
}

var priorities = codes[1].names

// maxRecordSize bounds max_record.
const maxRecordSize stream.Size = 64 << 20

// Validate returns an error for each invalid option.
func (o *Options) Validate() error {
	errs := []error{stream.CheckEnums(o)}
	wrong := func(key, format string, args ...any) {
		errs = append(errs, stream.OptionErrorf(key, format, args...))
	}
	for key, list := range map[string][]string{"units": o.Units, "identifiers": o.Identifiers} {
		for i, text := range list {
			if text == "" || strings.ContainsAny(text, "\x00\n") {
				wrong(fmt.Sprintf("%s[%d]", key, i), "is %q, want a name", text)
			}
		}
	}
	for i, text := range o.Match {
		name, _, ok := strings.Cut(text, "=")
		if !ok || name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			wrong(fmt.Sprintf("match[%d]", i), "is %q, want FIELD=VALUE such as _UID=1000", text)
		}
	}
	if o.Priority != "" && !isPriority(o.Priority) {
		wrong("priority", "is %q, want one of %s", o.Priority, strings.Join(priorities, ", "))
	}
	if len(o.Command) == 0 || o.Command[0] == "" {
		wrong("command", "is empty; write [journalctl]")
	}
	if o.MaxRecord < 1024 || o.MaxRecord > maxRecordSize {
		wrong("max_record", "is %v, want 1KiB to %v", o.MaxRecord, maxRecordSize)
	}
	return errors.Join(errs...)
}

func isPriority(text string) bool {
	for _, name := range priorities {
		if name == text {
			return true
		}
	}
	return false
}

// arguments returns the arguments with which journalctl reads the entry with this cursor and the
// entries after it. If cursor is "", journalctl begins at the position that the option `start`
// selects. With `start: latest` and without follow, it then prints only the last entry of the
// journal, which may be one that the other options exclude.
//
// The option --after-cursor is not used: if the entry with the cursor no longer exists, some
// versions of journalctl omit the entry that follows it.
func (o *Options) arguments(cursor string, follow bool) []string {
	args := []string{"--output=json", "--all", "--no-pager", "--quiet"}
	if o.Directory != "" {
		args = append(args, "--directory="+o.Directory)
	}
	if o.startsAtEnd(cursor) && !follow {
		return append(args, "--lines=1")
	}
	for _, unit := range o.Units {
		args = append(args, "--unit="+unit)
	}
	for _, id := range o.Identifiers {
		args = append(args, "--identifier="+id)
	}
	if o.Priority != "" {
		args = append(args, "--priority="+o.Priority)
	}
	switch {
	case cursor != "":
		args = append(args, "--cursor="+cursor)
	case o.startsAtEnd(cursor):
		args = append(args, "--lines=0")
	}
	if follow {
		args = append(args, "--follow")
		if !o.startsAtEnd(cursor) {
			args = append(args, "--no-tail") // otherwise it begins at the last ten lines
		}
		if o.Directory != "" {
			// otherwise it reads only entries of the current boot of this machine
			args = append(args, "--merge")
		}
	}
	return append(args, o.Match...)
}

// startsAtEnd reports whether reading begins at the end of the journal, without the entries that it
// already has.
func (o *Options) startsAtEnd(cursor string) bool { return cursor == "" && o.Start == Latest }

// ReadsObjects implements stream.ObjectOptions.
func (*Options) ReadsObjects() bool { return true }

// Shape implements stream.Shaper. It returns the fields that records can have.
func (*Options) Shape(in stream.Schema) (stream.Schema, error) {
	return stream.Schema{Fields: fields, OnError: in.OnError}, nil
}
