package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/stream"
)

// Exit statuses with a meaning of their own, from sysexits.h and from shells.
const (
	exUsage       = 64  // EX_USAGE: the command line is wrong
	exDataErr     = 65  // EX_DATAERR: the input is wrong
	exTempFail    = 75  // EX_TEMPFAIL: try again later
	exConfig      = 78  // EX_CONFIG
	notExecutable = 126 // the shell found the command but may not execute it
	notFound      = 127 // the shell did not find the command
)

// linesLane delivers each batch to a process of its own.
type linesLane struct {
	sink *Sink
	spec child.Spec
}

// Deliver implements stream.Worker. It runs the program once, with the batch as its input.
func (l *linesLane) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	if b.Kept() == 0 {
		return stream.Report{}, nil // no records: do not start a process
	}
	if ctx.Err() != nil {
		return stream.Report{}, context.Cause(ctx)
	}
	scratch := l.sink.scratch.Get().(*[]byte)
	defer l.sink.scratch.Put(scratch)
	data, err := l.sink.bodyOf(b, scratch)
	if err != nil {
		return stream.Report{}, err
	}
	spec := l.spec
	spec.Extra = map[string]string{"PENSTOCK_WORKER": l.spec.Extra["PENSTOCK_WORKER"],
		"PENSTOCK_BATCH": b.ID()}
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	spec.KeepInput, spec.DiscardOutput = true, true
	// kill the process as soon as ctx ends; normally it ends by itself after the end of its input
	spec.Grace = -1
	l.sink.host.Count("processes_started", 1)
	unread := false
	err = child.Run(own, spec, func(ctx context.Context, p *child.Process) error {
		err := p.Write(ctx, data)
		unread = errors.Is(err, child.ErrNotReading)
		if err == nil || unread {
			err = p.CloseInput()
			p.Await(ctx)
			left, _ := p.UnreadInput()
			unread = unread || left > 0
		}
		return err
	})
	return stream.Report{}, l.meaning(ctx, err, unread)
}

// meaning returns the outcome of an attempt. err is the error with which the process has ended, or
// nil. unread means that the process has not read the whole batch.
func (l *linesLane) meaning(ctx context.Context, err error, unread bool) error {
	if start, ok := errors.AsType[*child.StartError](err); ok {
		return &stream.Misconfigured{Err: start}
	}
	if err == nil {
		if unread {
			return fmt.Errorf("%s ended with status 0 before it had read the whole batch",
				l.spec.Command[0])
		}
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, stream.ErrAbandoned) {
		return cause
	}
	exit, ok := errors.AsType[*child.ExitError](err)
	if !ok {
		return err
	}
	switch exit.Code {
	case exDataErr:
		return &stream.Rejected{Err: err}
	case exTempFail:
		return &stream.Throttled{Err: err}
	case exUsage, exConfig, notExecutable, notFound:
		return &stream.Misconfigured{Err: err}
	}
	if exit.Signalled || exit.Killed != nil {
		return &stream.Died{Err: err}
	}
	return err
}
