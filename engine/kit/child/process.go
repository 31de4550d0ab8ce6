package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

// Process is a child that runs. Kill may be called by any goroutine; Write and
// CloseInput belong to one, Read to one.
type Process struct {
	name    string
	cmd     *exec.Cmd
	in, out *os.File
	input   *os.File // the read end of in, if Spec.KeepInput is set; else nil
	log     *logWriter
	stderr  *os.File
	exited  chan struct{} // closed when the process and its group are dead

	leftover int // bytes read after the deadline that its death set; of the goroutine that reads

	mu     sync.Mutex // guards what follows; held while a signal is sent, so that none goes to a process that was reaped
	killed error      // why; nil: it was not
	reaped bool
}

// PID is the process id, for logs.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill kills the process with its whole group; cause is part of what Run returns. It does not wait.
func (p *Process) Kill(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.killed == nil {
		p.killed = cause
	}
	killGroup(p.cmd.Process)
}

// writePatience is how long a write to a child that does not read blocks before its context is
// asked again.
const writePatience = 20 * time.Millisecond

// ErrNotReading is the error of a write to a child that has closed its standard input or has ended.
var ErrNotReading = errors.New("it no longer reads its standard input")

// Write writes all of data to the child's standard input. It blocks while the child does not read.
// When ctx ends it returns the cause; part of data may have been written. ErrNotReading means that
// the child will never read the rest.
func (p *Process) Write(ctx context.Context, data []byte) error {
	for {
		select {
		case <-p.exited:
			return ErrNotReading
		default:
		}
		if p.in.SetWriteDeadline(time.Now().Add(writePatience)) != nil { // it was closed: the child has ended
			return ErrNotReading
		}
		n, err := p.in.Write(data)
		switch {
		case err == nil:
			return nil
		case brokenPipe(err) || errors.Is(err, os.ErrClosed):
			return ErrNotReading
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data = data[n:]
	}
}

// Await returns when the process and its group are gone, or ctx ends.
func (p *Process) Await(ctx context.Context) {
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
}

// Read reads what the child writes to its standard output; io.EOF once it is dead and all was read.
func (p *Process) Read(text []byte) (int, error) {
	n, err := p.out.Read(text)
	if !errors.Is(err, os.ErrDeadlineExceeded) || p.leftover >= maxLeftover {
		return n, err
	}
	// The child is dead, and a process outside of its group holds the pipe, or this goroutine is late.
	// A deadline that has passed hides bytes that are there.
	if err := p.out.SetReadDeadline(time.Now().Add(leftoverWait)); err != nil {
		return 0, err
	}
	n, err = p.out.Read(text)
	p.leftover += n
	return n, err
}

const (
	leftoverWait = 10 * time.Millisecond
	maxLeftover  = 1 << 20 // the largest capacity of a pipe
)

// UnreadOutput returns the bytes that the child has written to its standard output and that Read
// has not returned. ok is false on systems that cannot tell.
func (p *Process) UnreadOutput() (bytes int, ok bool) { return unreadBytes(p.out) }

// CloseInput ends the child's standard input.
func (p *Process) CloseInput() error { return p.in.Close() }

// UnreadInput returns the bytes on the child's standard input that it has not read. It needs
// Spec.KeepInput. ok is false on systems that cannot tell.
func (p *Process) UnreadInput() (bytes int, ok bool) {
	if p.input == nil {
		return 0, false
	}
	return unreadBytes(p.input)
}

// Run starts a process, calls talk and returns when the process and its group are gone. When talk
// returns, or ctx ends, the child's standard input is closed; it then has Grace to end by itself,
// after which its group is killed.
//
// The error says how it ended: *StartError, an error of talk, *ExitError; nil is an end with status
// 0. Where talk's error only tells that the child is dead, what it died of is the better answer: it
// is part of an *ExitError then.
func Run(ctx context.Context, s Spec, talk func(ctx context.Context, p *Process) error) error {
	p, err := start(s)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s, process %d", p.name, p.PID())
	group := supervise.NewNamedGroup(context.WithoutCancel(ctx), name) // what watches the process outlives ctx, by Grace at most
	var state error
	group.Go("stderr", func(context.Context) error {
		_, _ = io.Copy(p.log, p.stderr) // it ends with the child, or by the deadline after it
		return nil
	})
	group.Go("exit", func(context.Context) error {
		state = p.wait()
		return nil
	})
	talked := make(chan struct{})
	group.Go("end", func(context.Context) error {
		p.end(ctx, talked, s.grace())
		return nil
	})
	returned := false
	defer func() {
		if !returned { // talk panicked, or ended the goroutine: the child goes, the panic stays
			p.Kill(errPanicked)
			close(talked)
			_ = group.Wait()
			p.close()
		}
	}()
	talkErr := talk(ctx, p)
	returned = true
	close(talked)
	groupErr := group.Wait()
	p.close()
	return errors.Join(p.meaning(state, talkErr), groupErr)
}

var errPanicked = errors.New("who talked to it panicked")

func start(s Spec) (*Process, error) {
	p := &Process{name: s.name(), cmd: s.command(), log: newLogWriter(s.Log, s.Attrs), exited: make(chan struct{})}
	var theirs, ours []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close()
		}
	}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			err = fmt.Errorf("start %s: %w", p.name, err)
		}
		return r, w, err
	}
	in, w, err := pipe()
	if err != nil {
		return nil, err
	}
	theirs, ours = append(theirs, in), append(ours, w)
	r, out, err := pipe()
	if err == nil {
		theirs, ours = append(theirs, out), append(ours, r)
		var e, errs *os.File
		if e, errs, err = pipe(); err == nil {
			theirs, ours = append(theirs, errs), append(ours, e)
			p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errs
			p.in, p.out, p.stderr = w, r, e
			if err = p.cmd.Start(); err != nil {
				err = &StartError{Program: p.name, Err: err}
			}
		}
	}
	if s.KeepInput && err == nil {
		p.input, theirs = in, theirs[1:]
	}
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, err
	}
	if err := limit(p.cmd.Process.Pid, s); err != nil {
		p.log.say("the limits of a child could not be set", err)
	}
	return p, nil
}

// wait returns how the process ended, once its group is dead too.
func (p *Process) wait() error {
	err := p.cmd.Wait()
	p.mu.Lock()
	killGroup(p.cmd.Process) // what it has left behind; its id cannot have been given away in this moment
	p.reaped = true
	p.mu.Unlock()
	soon := time.Now().Add(lingering) // a process that has left the group may hold the pipes for ever
	_ = p.out.SetReadDeadline(soon)
	_ = p.stderr.SetReadDeadline(soon)
	close(p.exited)
	return err
}

// end ends the child's input when the talk is over or ctx ends, and kills the child where that does
// not end it in time.
func (p *Process) end(ctx context.Context, talked <-chan struct{}, grace time.Duration) {
	cause := errSilent
	select {
	case <-p.exited:
		return
	case <-talked:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	_ = p.in.Close()
	if grace > 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.exited:
			return
		case <-timer.C:
		}
	}
	p.Kill(cause)
}

var errSilent = errors.New("it did not end when its input did")

func (p *Process) close() {
	_ = p.in.Close()
	_ = p.out.Close()
	_ = p.stderr.Close()
	if p.input != nil {
		_ = p.input.Close()
	}
	p.log.flush()
}

// meaning joins how the process ended with what talk said.
func (p *Process) meaning(state, talkErr error) error {
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	if state == nil && killed == nil {
		return talkErr
	}
	ended := p.cmd.ProcessState
	e := &ExitError{Program: p.name, Code: ended.ExitCode(), State: ended.String(), Killed: killed, Said: p.log.last()}
	e.Signalled = killed == nil && e.Code < 0
	if talkErr != nil && !errors.Is(talkErr, killed) && !isBroken(talkErr) {
		e.Talk = talkErr
	}
	return e
}

// isBroken says whether err only tells that the child is gone.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, ErrNotReading) ||
		errors.Is(err, os.ErrDeadlineExceeded) || brokenPipe(err)
}
