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

// Process is a running child. Kill may be called concurrently. Only one goroutine may call Write
// and CloseInput, and only one goroutine may call Read. These may be two different goroutines.
type Process struct {
	name    string
	cmd     *exec.Cmd
	in, out *os.File
	input   *os.File // the read end of in, if Spec.KeepInput is set; else nil
	log     *logWriter
	stderr  *os.File
	exited  chan struct{} // closed when the process has ended and its group was killed

	// leftover counts the bytes that Read has returned after the read deadline, which is set when
	// the child dies. Beyond maxLeftover, Read does not extend the deadline any more. Only the
	// goroutine that calls Read uses this field.
	leftover int

	// mu guards the fields below. After reaped is set, no signal may be sent, because another
	// process could get the process id. mu is therefore held from the check of reaped until the
	// signal is sent.
	mu     sync.Mutex
	killed error // the reason for the kill; nil if not killed
	reaped bool
}

// PID returns the process id, for logs.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill kills the process and its group, and does not wait for their end. The error of Run will
// include the cause of the first call. Once the process has ended, Kill does nothing.
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

// terminate sends SIGTERM to the process and its group, unless it was killed. The error of Run will
// then include cause.
func (p *Process) terminate(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return
	}
	if p.killed == nil && terminateGroup(p.cmd.Process) {
		p.killed = cause
	}
}

// writePatience is the interval at which a blocked write checks its context.
const writePatience = 20 * time.Millisecond

// ErrNotReading is the error of a write to a child that has closed its standard input or has ended.
var ErrNotReading = errors.New("it no longer reads its standard input")

// Write writes all of data to the child's standard input. It blocks while the pipe is full. If ctx
// ends first, Write returns its cause, and a part of data may have been written.
// ErrNotReading means that the child will not read any more data.
func (p *Process) Write(ctx context.Context, data []byte) error {
	for {
		select {
		case <-p.exited:
			return ErrNotReading
		default:
		}
		// an error means that this process has closed the pipe
		if p.in.SetWriteDeadline(time.Now().Add(writePatience)) != nil {
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

// Await waits until the process has ended and its group was killed, or ctx ends.
func (p *Process) Await(ctx context.Context) {
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
}

// Read reads the child's standard output. It returns io.EOF when all output was read and no process
// holds the pipe open any more. If a process outside the child's group still holds it open, Read
// returns os.ErrDeadlineExceeded about a second after the child's death, or later if there is still
// output to read.
func (p *Process) Read(text []byte) (int, error) {
	n, err := p.out.Read(text)
	if !errors.Is(err, os.ErrDeadlineExceeded) || p.leftover >= maxLeftover {
		return n, err
	}
	// The read deadline has passed, so the child is dead. Either a process outside its group still
	// holds the pipe, or this goroutine has not read all output yet. No bytes can be read after the
	// deadline, so it must be moved into the future.
	if err := p.out.SetReadDeadline(time.Now().Add(leftoverWait)); err != nil {
		return 0, err
	}
	n, err = p.out.Read(text)
	p.leftover += n
	return n, err
}

const (
	leftoverWait = 10 * time.Millisecond
	maxLeftover  = 1 << 20 // the largest capacity of a pipe on Linux
)

// UnreadOutput returns the number of bytes of the child's standard output that Read has not
// returned yet. ok is false if the system cannot report it.
func (p *Process) UnreadOutput() (bytes int, ok bool) { return unreadBytes(p.out) }

// CloseInput closes the child's standard input.
func (p *Process) CloseInput() error { return p.in.Close() }

// UnreadInput returns the number of bytes that were written to the child's standard input and that
// the child has not read. ok is false if the system cannot report it, or if Spec.KeepInput is not
// set.
func (p *Process) UnreadInput() (bytes int, ok bool) {
	if p.input == nil {
		return 0, false
	}
	return unreadBytes(p.input)
}

// Run starts a process, calls talk, and returns when talk has returned, the process has ended, and
// the rest of its group was killed. It closes the child's standard input when talk returns or ctx
// ends. If the child does not end within Spec.Grace after that, Run kills the process group.
//
// If the program cannot be started, Run returns a *StartError, or another error if the reason is
// temporary. If the child exits with status 0 and was neither killed nor terminated, Run returns
// the error of talk. Otherwise it returns an *ExitError, which includes the error of talk unless
// this is only a consequence of the child's death. Run wraps these errors: use errors.As.
func Run(ctx context.Context, s Spec, talk func(ctx context.Context, p *Process) error) error {
	p, err := start(s)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s, process %d", p.name, p.PID())
	// The goroutines outlive ctx, because the child may run for Grace after the end of ctx.
	group := supervise.NewNamedGroup(context.WithoutCancel(ctx), name)
	var state error
	group.Go("stderr", func(context.Context) error {
		// ends with the child, or at the deadline set after its death
		_, _ = io.Copy(p.log, p.stderr)
		return nil
	})
	if s.DiscardOutput {
		group.Go("stdout", func(context.Context) error {
			_, _ = io.Copy(io.Discard, p) // ends like the goroutine stderr
			return nil
		})
	}
	group.Go("exit", func(context.Context) error {
		state = p.wait()
		return nil
	})
	talked := make(chan struct{})
	group.Go("end", func(context.Context) error {
		p.end(ctx, talked, s)
		return nil
	})
	returned := false
	defer func() {
		// talk panicked or called runtime.Goexit: kill the child and let the panic continue
		if !returned {
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

var errPanicked = errors.New("the goroutine that uses it panicked")

func start(s Spec) (*Process, error) {
	p := &Process{name: s.name(), cmd: s.command(), log: newLogWriter(s.Log, s.Attrs),
		exited: make(chan struct{})}
	var readEnds, writeEnds [3]*os.File // of standard input, output and error
	for i := range readEnds {
		var err error
		if readEnds[i], writeEnds[i], err = os.Pipe(); err != nil {
			closeAll(readEnds[:i])
			closeAll(writeEnds[:i])
			return nil, fmt.Errorf("start %s: %w", p.name, err)
		}
	}
	p.in, p.out, p.stderr = writeEnds[0], readEnds[1], readEnds[2]
	theirs := []*os.File{readEnds[0], writeEnds[1], writeEnds[2]}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	err := p.cmd.Start()
	if s.KeepInput && err == nil {
		p.input, theirs = theirs[0], theirs[1:]
	}
	closeAll(theirs)
	if err != nil {
		closeAll([]*os.File{p.in, p.out, p.stderr})
		return nil, startError(p.name, err)
	}
	if err := limit(p.cmd.Process.Pid, s); err != nil {
		p.log.say("cannot set the limits of a child", err)
	}
	return p, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// wait waits for the process and kills the rest of its group. It returns the error of cmd.Wait.
func (p *Process) wait() error {
	err := p.cmd.Wait()
	p.mu.Lock()
	// Kill the remaining members of the process group. The id of the group is that of the process,
	// which was reaped just now. The system does not reuse this id while the group has members.
	killGroup(p.cmd.Process)
	p.reaped = true
	p.mu.Unlock()
	// A process that has left the group may hold the pipes open. Therefore bound the reads.
	soon := time.Now().Add(lingering)
	_ = p.out.SetReadDeadline(soon)
	_ = p.stderr.SetReadDeadline(soon)
	close(p.exited)
	return err
}

// end closes the child's input when ctx ends, or when talked is closed because the function talk of
// Run has returned. If the child does not end within its grace period, end kills it.
func (p *Process) end(ctx context.Context, talked <-chan struct{}, s Spec) {
	select {
	case <-p.exited:
		return
	case <-talked:
	case <-ctx.Done():
	}
	// Often talk returns because ctx has ended; then both channels are closed.
	cause := context.Cause(ctx)
	if cause == nil {
		cause = errSilent
	}
	_ = p.in.Close()
	if s.grace() > 0 && p.endsWithin(ctx, s) {
		return
	}
	p.Kill(cause)
}

// endsWithin reports whether the child ends within its grace period. If Spec.Terminate is set, it
// sends SIGTERM to the child's group as soon as ctx has ended.
func (p *Process) endsWithin(ctx context.Context, s Spec) bool {
	timer := time.NewTimer(s.grace())
	defer timer.Stop()
	var ended <-chan struct{}
	if s.Terminate {
		ended = ctx.Done()
	}
	for {
		select {
		case <-p.exited:
			return true
		case <-ended:
			p.terminate(context.Cause(ctx))
			ended = nil
		case <-timer.C:
			return false
		}
	}
}

var errSilent = errors.New("it did not exit after the end of its input")

func (p *Process) close() {
	_ = p.in.Close()
	_ = p.out.Close()
	_ = p.stderr.Close()
	if p.input != nil {
		_ = p.input.Close()
	}
	p.log.flush()
}

// meaning returns the error of Run. state is the error of waiting for the process. It is nil for
// exit status 0. talkErr is the error of the function talk.
func (p *Process) meaning(state, talkErr error) error {
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	if state == nil && killed == nil {
		return talkErr
	}
	ended := p.cmd.ProcessState
	e := &ExitError{Program: p.name, Code: ended.ExitCode(), State: ended.String(), Killed: killed,
		Stderr: p.log.last()}
	e.Signalled = killed == nil && e.Code < 0
	if talkErr != nil && !errors.Is(talkErr, killed) && !isBroken(talkErr) {
		e.Protocol = talkErr
	}
	return e
}

// isBroken reports whether err, an error of reading or writing the pipes, is only a consequence of
// the child's death.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, os.ErrClosed) || errors.Is(err, ErrNotReading) ||
		errors.Is(err, os.ErrDeadlineExceeded) || brokenPipe(err)
}
