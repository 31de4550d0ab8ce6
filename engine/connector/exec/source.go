package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// SourceComponent returns the source exec, which reads the output of a command.
//
// The output cannot be read a second time. If penstock is killed, records that were read but not
// delivered are lost. If the source's memory is full, the source stops reading, so that the command
// must wait when it writes. When the source drains or stops, it sends SIGTERM to the command's
// process group, reads the rest of the output, and kills the group after `grace`. The rest is
// delivered at a drain, and lost at a stop.
func SourceComponent() stream.Component {
	return stream.NewComponent(stream.SourceRole, "exec", DefaultSourceOptions, NewSource)
}

// Source reads the output of one command. Its Intake holds the records in memory until every route
// has delivered, dead-lettered or dropped them.
type Source struct {
	*intake.Intake
	o      SourceOptions
	host   stream.Host
	spec   child.Spec
	opened chan struct{} // closed by the first Open
	open   sync.Once
	once   bool // run the command only once; set before opened is closed
	health commandHealth
}

// NewSource returns a source. It does not start the command.
func NewSource(o SourceOptions, h stream.Host) (*Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	waiting, err := intake.New(intake.Options{
		Name: "output of " + o.Command[0], MaxBytes: int64(o.MaxWaiting),
		Objects: o.Format == NDJSON,
	}, h)
	if err != nil {
		return nil, err
	}
	s := &Source{
		Intake: waiting, o: o, host: h, spec: o.Spec("source"), opened: make(chan struct{}),
	}
	s.spec.Log, s.spec.Attrs, s.spec.Terminate = h.Log(), []any{"program", o.Command[0]}, true
	for _, counter := range []string{"runs", "runs_failed", "runs_skipped", "records_cut"} {
		h.Count(counter, 0)
	}
	h.Go("exec/command", s.serve)
	return s, nil
}

// Open implements stream.Source. In a finite run (--once), the command runs only once.
func (s *Source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	r, err := s.Intake.Open(ctx, o)
	if err == nil {
		s.open.Do(func() {
			s.once = o.Once
			close(s.opened)
		})
	}
	return r, err
}

// Failure implements stream.RetryingSource.
func (s *Source) Failure() error { return s.health.failure() }

// serve runs the command as long as routes want data. It returns when the command has ended for the
// last time or ctx is done.
func (s *Source) serve(ctx context.Context) error {
	select {
	case <-s.opened:
	case <-ctx.Done():
		return nil
	}
	for s.Accepting(ctx) == nil {
		ended, err := s.untilDrain(ctx)
		if !ended {
			continue
		}
		s.End()
		if err == nil {
			return nil
		}
		<-ctx.Done() // first deliver the records read before the failure
		return supervise.Final(err)
	}
	return nil
}

var errDraining = errors.New("the routes drain")

// untilDrain runs the command until the routes drain or ctx is done. If it returns true, the
// command will not run again, and err is the failure of its last run, or nil.
func (s *Source) untilDrain(ctx context.Context) (ended bool, err error) {
	defer s.Producer()()
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := supervise.NewNamedGroup(run, "drain")
	watch.Go("drain", func(context.Context) error {
		select {
		case <-s.Draining():
			cancel(errDraining)
		case <-run.Done():
		}
		return nil
	})
	switch {
	case s.once:
		err = s.limited(ctx, run)
	case s.o.Every > 0:
		err = s.schedule(ctx, run)
	default:
		err = s.supervise(ctx, run)
	}
	ended = run.Err() == nil
	cancel(nil)
	return ended, errors.Join(err, watch.Wait())
}

// supervise runs the command until run is done. If the command ends before that, supervise restarts
// it, or returns if the command must not be restarted.
func (s *Source) supervise(ctx, run context.Context) error {
	restart := map[string]supervise.Restart{
		Always: supervise.Permanent, OnFailure: supervise.Transient, Never: supervise.Temporary,
	}
	tree, err := supervise.New("exec", supervise.Spec{
		OnEvent: func(_ context.Context, e supervise.Event) { // no log here: each run logs its end
			if e.Kind == supervise.Ended && e.Restart {
				s.host.Log().Info("command starts again", "in", e.Delay)
			}
		},
		Backoff: backoff.Exponential(child.FirstWait, 2, child.LastWait).Equal(),
	}, supervise.Child{
		Name: "command", Restart: restart[s.o.Restart], Significant: true,
		Run:      func(run context.Context) error { return s.run(ctx, run) },
		Shutdown: s.o.Grace + killTime,
	})
	if err != nil {
		return err
	}
	return tree.Serve(run)
}

// killTime bounds the time until the end of a process group that was killed.
const killTime = 5 * time.Second

// schedule starts the command at the interval `every` until run is done. If a start is due while
// the command still runs, schedule skips this start.
func (s *Source) schedule(ctx, run context.Context) error {
	planned := time.Now()
	for {
		_ = s.limited(ctx, run) // logged and counted; the next run is the retry
		var skipped int64
		planned, skipped = following(planned, time.Now(), s.o.Every)
		s.host.Count("runs_skipped", skipped)
		if err := retry.Sleep(run, time.Until(planned)); err != nil {
			return nil
		}
	}
}

// limited runs the command once. It makes the command end when runCtx is done, or when the command
// has run for the option timeout.
func (s *Source) limited(ctx, runCtx context.Context) error {
	if s.o.Timeout > 0 {
		var cancel context.CancelFunc
		runCtx, cancel = context.WithTimeoutCause(runCtx, s.o.Timeout, &timeoutError{s.o.Timeout})
		defer cancel()
	}
	return s.run(ctx, runCtx)
}

// timeoutError means that a run of the command has exceeded its timeout.
type timeoutError struct{ after time.Duration }

// Error implements error.
func (e *timeoutError) Error() string {
	return fmt.Sprintf("it ran longer than timeout: %v", e.after)
}

// following returns the next planned start of the command after now, given the planned time of the
// last start. missed is the number of planned starts between the last and the next one.
func following(planned, now time.Time, every time.Duration) (next time.Time, missed int64) {
	missed = max(0, int64(now.Sub(planned)/every))
	return planned.Add(time.Duration(missed+1) * every), missed
}

// run runs the command once and submits its output. When runCtx is done, run makes the command end
// and submits the rest of the output. If ctx is done as well, this rest is lost.
func (s *Source) run(ctx, runCtx context.Context) error {
	begun := time.Now()
	s.host.Count("runs", 1)
	s.health.begin()
	records := 0
	err := child.Run(runCtx, s.spec, func(_ context.Context, p *child.Process) (err error) {
		records, err = s.read(ctx, p)
		return err
	})
	log := s.host.Log().With("program", s.o.Command[0], "records", records,
		"ran", time.Since(begun).Round(time.Millisecond))
	var late *timeoutError
	if runCtx.Err() != nil && !errors.As(context.Cause(runCtx), &late) {
		log.Debug("command was ended with its source", "error", err)
		return nil
	}
	s.health.end(err)
	if err == nil {
		log.Info("command ended", "status", 0)
		return nil
	}
	s.host.Count("runs_failed", 1)
	if s.once || s.o.Every == 0 && s.o.Restart == Never {
		return err // the source ends with this error
	}
	status := -1
	if exit, ok := errors.AsType[*child.ExitError](err); ok {
		status = exit.Code
	}
	if start, ok := errors.AsType[*child.StartError](err); ok {
		s.host.Fault(start)
	} else {
		log.Warn("command failed", "status", status, "error", err)
	}
	return err
}

// read reads the output of a command up to its end and submits it to the routes. It returns the
// number of submitted records.
func (s *Source) read(ctx context.Context, p *child.Process) (records int, err error) {
	_ = p.CloseInput() // the command gets no input
	cut := intake.NewCutter(int(s.o.MaxRecord), intake.Delimiter(s.o.Delimiter), 0)
	for {
		n, readErr := p.Read(cut.Space())
		added, err := s.add(ctx, cut.Cut(n))
		records += added
		if readErr != nil || err != nil { // the last record may have no delimiter
			last, lastErr := s.add(ctx, cut.End())
			records, err = records+last, cmp.Or(err, lastErr)
		}
		s.host.Count("records_cut", cut.Long())
		switch {
		case err != nil:
			return records, err
		case errors.Is(readErr, io.EOF):
			return records, nil
		case readErr != nil:
			return records, readErr
		}
	}
}

// add submits records to the routes, and returns the number of these records. If it cannot submit
// them, it counts them as lost.
func (s *Source) add(ctx context.Context, records intake.Records) (added int, err error) {
	if records.Len() == 0 {
		return 0, nil
	}
	if err := s.Add(ctx, records); err != nil {
		return 0, err
	}
	s.health.wrote()
	return records.Len(), nil
}
