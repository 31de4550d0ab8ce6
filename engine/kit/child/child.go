// Package child runs programs as child processes, for connectors and processors that hand their
// work to one.
//
// A child gets no shell, an environment of listed names only, a process group of its own, which is
// killed as a whole, and limits where the system offers them. What it writes to standard error goes
// to the log, so many lines a second at most. [Run] owns one process from its start to its end:
// when it returns, the process and its group are gone and nothing reads or writes its pipes. [Slot]
// is a place at which a supervisor keeps a process running. [ServeLines] is the loop of all that
// talk in lines; what a line says is its caller's affair, or that of package multilang.
package child

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Spec says what to run, and within which limits. It is copied and never changed.
type Spec struct {
	Command []string // program and arguments: a name is looked up in PATH, one with a slash is relative to Dir
	Dir     string   // the working directory; "" means that of this process
	// Env are the names of this process's variables that the child gets; those that are not set it
	// does not get either.
	Env []string
	// Extra are values for names in Env that this process does not have; they win.
	Extra map[string]string

	Memory stream.Size   // bytes of address space of each process; 0: no limit. Linux
	CPU    time.Duration // processor time of each process, rounded up to seconds; 0: no limit. Linux
	// Grace is how long the child may take to end by itself, once its standard input has ended; 0
	// means 5 s, negative: it is killed at once.
	Grace time.Duration

	// KeepInput keeps the read end of the child's standard input open in this process, for
	// [Process.UnreadInput]. A child that closes its input then makes Write block until the child
	// ends, instead of failing at once.
	KeepInput bool

	// Log takes what the child writes to standard error; Attrs are put beside it. nil: it is thrown
	// away.
	Log   *slog.Logger
	Attrs []any
}

const (
	defaultGrace = 5 * time.Second
	// lingering is how long what a dead child has left in its pipes may take to be read, where a
	// process outside of its group still holds them.
	lingering = time.Second
)

func (s Spec) grace() time.Duration { return cmp.Or(s.Grace, defaultGrace) }

// Validate says what cannot be run, before anything is started: an *stream.OptionError with the key
// command, env, memory or cpu. It does not look whether the program is there: it may be by the time
// it is needed.
func (s Spec) Validate() error {
	option := func(key, format string, args ...any) error {
		return &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
	}
	var errs []error
	if len(s.Command) > 0 && s.Command[0] == "" {
		errs = append(errs, option("command[0]", "is empty; it is the program to run"))
	}
	if len(s.Command) == 1 && strings.ContainsAny(s.Command[0], " \t") && !strings.Contains(s.Command[0], "/") {
		words := strings.Fields(s.Command[0])
		for i := range words {
			words[i] = fmt.Sprintf("%q", words[i])
		}
		errs = append(errs, option("command[0]", "%q is one word with a space; no shell takes it apart: write [%s]",
			s.Command[0], strings.Join(words, ", ")))
	}
	for i, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, option(fmt.Sprintf("command[%d]", i), "holds a NUL byte, which no program can be given"))
		}
	}
	for i, name := range s.Env {
		key := fmt.Sprintf("env[%d]", i)
		bare, _, valued := strings.Cut(name, "=")
		switch {
		case valued:
			errs = append(errs, option(key, "%s is given a value; list the name alone and set it where penstock starts", bare))
		case name == "" || strings.ContainsRune(name, 0):
			errs = append(errs, option(key, "%q is no name of a variable", name))
		case slices.Contains(s.Env[:i], name):
			errs = append(errs, option(key, "%q is listed twice", name))
		}
	}
	if s.Memory < 0 || s.Memory > 0 && s.Memory < minMemory {
		errs = append(errs, option("memory", "%v is less than any program needs; want %v or more", s.Memory, stream.Size(minMemory)))
	}
	if s.CPU < 0 {
		errs = append(errs, option("cpu", "%v is below zero; leave it out for no limit", s.CPU))
	}
	return errors.Join(errs...)
}

// minMemory is less address space than a C library takes to start.
const minMemory = 1 << 20

// environ is what the child gets, in the order of Env.
func (s Spec) environ() []string {
	env := make([]string, 0, len(s.Env)) // not nil: that would mean all of this process's
	for _, name := range s.Env {
		if value, ok := s.Extra[name]; ok {
			env = append(env, name+"="+value)
		} else if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// command is the process to be started, without its pipes.
func (s Spec) command() *exec.Cmd {
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.Dir, s.environ(), attributes()
	return cmd
}

// name is how errors call the program: without its arguments, which may hold secrets.
func (s Spec) name() string { return s.Command[0] }
