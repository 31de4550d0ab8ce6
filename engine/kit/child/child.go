// Package child runs programs as child processes. Connectors and processors use it to pass records
// to a program, or to read records from one.
//
// A child runs without a shell and gets only the environment variables listed in its [Spec]. On
// Unix, it has a process group of its own, which can be killed as a whole. On Linux, its memory and
// processor time can be limited. Its standard error is logged at a limited rate.
//
// [Run] runs one process from start to end: when Run returns, the process has ended, the rest of
// its group was killed, and its pipes are closed. [Fleet] keeps several children running, one in
// each [Slot], and restarts those that end. [ServeLines] reads a child's output line by line. The
// package does not interpret the lines; its caller does, or package multilang for Storm's protocol.
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

// Spec describes a program to run and its limits.
type Spec struct {
	// Command is the program and its arguments. A program name without a slash is looked up in the
	// PATH of this process. A relative path with a slash, such as bin/send, is relative to Dir.
	Command []string
	Dir     string // working directory; "" means that of this process
	// Env lists the names of the environment variables that the child gets from this process. The
	// child gets no others.
	Env []string
	// Extra has values for names in Env. The child gets these values instead of those in the
	// environment of this process.
	Extra map[string]string

	Memory stream.Size // address space of each process in bytes; 0 means no limit; Linux only
	// CPU bounds the processor time of each process, rounded up to seconds. Zero means no limit.
	// Linux only.
	CPU time.Duration
	// Grace is the time in which the child should end by itself, counted from when Run closes its
	// standard input. After this time, the child is killed. Zero means 5s. If Grace is negative,
	// the child is killed at once.
	Grace time.Duration
	// Terminate makes Run send SIGTERM to the child's process group when Run's context ends. It is
	// for programs that do not notice the end of their standard input. It has no effect if Grace is
	// negative, or on systems without signals.
	Terminate bool

	// KeepInput makes [Process.UnreadInput] available. For this purpose, this process keeps the
	// read end of the child's standard input open. This has a cost: if the child closes its input,
	// Write does not fail. Once the pipe is full, it blocks until the child or the context ends.
	KeepInput bool

	// DiscardOutput makes Run read the child's standard output and discard it, so that the child
	// never blocks in a write to it. The function passed to Run must not call Process.Read.
	DiscardOutput bool

	// Log gets the child's standard error, with Attrs as attributes. If it is nil, only the end of
	// the standard error is kept, for ExitError.Stderr.
	Log   *slog.Logger
	Attrs []any
}

const (
	defaultGrace = 5 * time.Second
	// lingering is the time from a child's death to the deadline for reads of its output. A process
	// that has left the child's process group may hold the pipes open. Without a deadline, the
	// reads would then never end.
	lingering = time.Second
)

func (s Spec) grace() time.Duration { return cmp.Or(s.Grace, defaultGrace) }

// Validate checks s without starting the program. Each error is a *stream.OptionError with a key
// such as command[0], env[1], memory or cpu. Validate does not check that the program exists,
// because it may be installed later.
func (s Spec) Validate() error {
	var errs []error
	if len(s.Command) > 0 && s.Command[0] == "" {
		errs = append(errs, stream.OptionErrorf("command[0]", "is empty; add the program to run"))
	}
	if len(s.Command) == 1 && strings.ContainsAny(s.Command[0], " \t") &&
		!strings.Contains(s.Command[0], "/") {
		words := strings.Fields(s.Command[0])
		for i := range words {
			words[i] = fmt.Sprintf("%q", words[i])
		}
		errs = append(errs, stream.OptionErrorf("command[0]", "%q is one word with a space, but "+
			"no shell splits it: write [%s]", s.Command[0], strings.Join(words, ", ")))
	}
	for i, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			errs = append(errs, stream.OptionErrorf(fmt.Sprintf("command[%d]", i),
				"has a NUL byte, which cannot be passed to a program"))
		}
	}
	for i, name := range s.Env {
		key := fmt.Sprintf("env[%d]", i)
		bare, value, valued := strings.Cut(name, "=")
		switch {
		case valued:
			errs = append(errs, &stream.OptionError{Key: key, Secret: value,
				Err: fmt.Errorf("%s has a value; list only the name, and set the value in the "+
					"environment of penstock", bare)})
		case name == "" || strings.ContainsRune(name, 0):
			errs = append(errs, stream.OptionErrorf(key, "%q is not the name of a variable", name))
		case slices.Contains(s.Env[:i], name):
			errs = append(errs, stream.OptionErrorf(key, "%q is listed twice", name))
		}
	}
	if s.Memory < 0 || s.Memory > 0 && s.Memory < minMemory {
		errs = append(errs, stream.OptionErrorf("memory", "%v is too little for any program; "+
			"want %v or more", s.Memory, stream.Size(minMemory)))
	}
	if s.CPU < 0 {
		errs = append(errs, stream.OptionErrorf("cpu", "%v is below zero; remove it for no limit",
			s.CPU))
	}
	return errors.Join(errs...)
}

// minMemory is the least valid Spec.Memory other than 0. No program can start with less, because
// its C library needs more address space.
const minMemory = 1 << 20

// environ returns the environment of the child, in the order of Env.
func (s Spec) environ() []string {
	// not nil, which would pass on the whole environment of this process
	env := make([]string, 0, len(s.Env))
	for _, name := range s.Env {
		if value, ok := s.Extra[name]; ok {
			env = append(env, name+"="+value)
		} else if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// command returns the process to start, without its pipes.
func (s Spec) command() *exec.Cmd {
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.Dir, s.environ(), attributes()
	return cmd
}

// name returns the program for use in errors. It omits the arguments, which may contain secrets.
func (s Spec) name() string { return s.Command[0] }
