package supervise

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Errors that a child returns, possibly wrapped, to choose the next step. A Supervisor ignores them
// from a child that it has told to stop.
var (
	// ErrStop means that the child is done and must not be restarted, even if Child.Restart demands
	// it.
	ErrStop = errors.New("supervise: done, not to be restarted")
	// ErrEscalate means that restarting the child would not help. The supervisor stops its children
	// and returns an *EscalatedError, unless the child is Temporary.
	ErrEscalate = errors.New("supervise: a restart does not help")
)

// Final returns an error with the text of err that wraps both err and ErrStop. If err is nil, it
// returns nil. A child returns this error if it must not be restarted. A Supervisor treats it as
// ErrStop, and does not report err as a failure. So use Final where another place keeps the error,
// and ErrEscalate otherwise.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

type finalError struct{ err error }

func (e *finalError) Error() string   { return e.err.Error() }
func (e *finalError) Unwrap() []error { return []error{e.err, ErrStop} }

// Causes of the end of a context.
var (
	// ErrStopped is the cause with which a Group ends its context after Stop(nil) or Wait. It is
	// also the cause with which a Supervisor ends the contexts of its children when a Significant
	// child is done.
	ErrStopped = errors.New("supervise: stopped")
	// ErrRestarting is the cause with which a Supervisor ends the context of a child in order to
	// restart the child, because of a call of Restart or of the strategy.
	ErrRestarting = errors.New("supervise: restarting")
	// ErrRemoved is the cause after Remove.
	ErrRemoved = errors.New("supervise: removed")
)

// A PanicError is a panic or a call of runtime.Goexit in a supervised goroutine.
type PanicError struct {
	Name  string // name of the goroutine
	Value any    // the panic value; nil for runtime.Goexit
	Stack []byte // stack of the goroutine, as runtime/debug.Stack returns it
}

// Error returns the name, the value and, on the following lines, the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("%s\n%s", e.line(), e.Stack) }

func (e *PanicError) line() string {
	if e.Value == nil {
		return fmt.Sprintf("%s: runtime.Goexit was called", e.Name)
	}
	return fmt.Sprintf("%s: panic: %v", e.Name, e.Value)
}

// named adds the name of a goroutine to its error, unless the error is its panic.
func named(name string, err error) error {
	if p, ok := err.(*PanicError); ok && p.Name == name {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Unwrap returns the panic value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// LogValue implements slog.LogValuer.
func (e *PanicError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("msg", e.line()), slog.String("stack", string(e.Stack)))
}

// An EscalatedError is the result of Serve when a supervisor gives up. Each of its children has
// returned or is stuck. A parent supervisor treats an EscalatedError as one crash of this
// supervisor. The parent does so even if the error wraps the ErrEscalate or ErrStop of a child,
// because these were meant for this supervisor only.
type EscalatedError struct {
	Supervisor string  // path: the names from the root, separated by slashes
	Child      string  // the child that made the supervisor give up
	Reason     string  // such as "more than 5 restarts within 1m0s"
	Errs       []error // the last errors of the children, oldest first, at most 8
}

// Error returns the supervisor, the child, the reason and the children's errors.
func (e *EscalatedError) Error() string {
	var b strings.Builder
	b.WriteString(e.line())
	for i, err := range e.Errs {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep)
		b.WriteString(err.Error())
	}
	return b.String()
}

func (e *EscalatedError) line() string {
	return fmt.Sprintf("supervisor %q gave up at child %q: %s", e.Supervisor, e.Child, e.Reason)
}

// Unwrap returns the children's errors, the last one first. Thus errors.As finds the latest failure
// that has the wanted type.
func (e *EscalatedError) Unwrap() []error {
	all := slices.Clone(e.Errs)
	slices.Reverse(all)
	return all
}

// LogValue implements slog.LogValuer. It has the last of the children's errors, and no stack.
func (e *EscalatedError) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("msg", e.line()), slog.String("supervisor", e.Supervisor),
		slog.String("child", e.Child),
		slog.String("reason", e.Reason),
	}
	if n := len(e.Errs); n > 0 {
		attrs = append(attrs, slog.String("last_error", firstLine(e.Errs[n-1])))
	}
	return slog.GroupValue(attrs...)
}

// A StuckError lists the children that had not returned when the outermost supervisor's Serve
// returned. Their goroutines are still running.
type StuckError struct {
	Supervisor string
	Children   []string // paths below Supervisor, in the order in which they were told to stop
}

// Error lists the children.
func (e *StuckError) Error() string {
	return fmt.Sprintf("supervisor %q: did not stop in time: %s: they must return when their "+
		"context ends",
		e.Supervisor, strings.Join(e.Children, ", "))
}

// LogValue implements slog.LogValuer.
func (e *StuckError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("msg", e.Error()), slog.String("supervisor", e.Supervisor),
		slog.Any("children", e.Children))
}

// asks reports whether err wraps request, which is ErrStop or ErrEscalate. A request inside an
// EscalatedError does not count: it was meant for the supervisor that has returned this error.
func asks(err, request error) bool {
	for err != nil && err != request {
		if _, handled := err.(*EscalatedError); handled {
			return false
		}
		if e, ok := err.(interface{ Is(error) bool }); ok && e.Is(request) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
			continue
		case interface{ Unwrap() []error }:
			return slices.ContainsFunc(e.Unwrap(), func(err error) bool {
				return asks(err, request)
			})
		}
		return false
	}
	return err == request
}

// firstLine cuts the stack off the text of a panic.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
