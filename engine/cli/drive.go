package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

// driven has the parameters of drive.
type driven struct {
	once    bool
	watched *watchedConfig // reload the config when it changes; nil if it is not watched
	reloads bool           // SIGHUP reloads the config instead of draining the engine
	manager *serviceManager
}

// drive runs e until it ends. The first SIGINT or SIGTERM drains e. The second one stops it
// immediately, and drive then waits at most p.stopping for e. If d.reloads is set, SIGHUP reloads
// the config, otherwise it drains e. SIGHUP never counts as the second signal, because a terminal
// that is closed may send several.
func (p *program) drive(ctx context.Context, e runner, d driven, con *console) error {
	signals, stop := p.notify()
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	group := supervise.NewGroup(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	group.Go("engine", func(context.Context) error {
		err := errors.New("the engine ended without a result") // returned if Run panics
		defer func() { ended <- err }()
		err = e.Run(ctx)
		return nil
	})
	reloads := newReloader(e, d.manager)
	group.Go("reload", reloads.Run)
	if d.watched != nil {
		group.Go("watch", func(ctx context.Context) error { return d.watched.watch(ctx, reloads.request) })
	}
	if d.manager != nil {
		group.Go("service manager", func(ctx context.Context) error { return d.manager.Run(ctx, e) })
	}
	every := progressEvery
	if con.view != nil {
		every = drawEvery
		defer con.view.draw(nil)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var seen progressView
	stopper := &stopper{p: p, e: e, manager: d.manager, con: con, cancel: cancel, late: time.NewTimer(0)}
	stopper.late.Stop()
	defer stopper.late.Stop()
	for {
		select {
		case err := <-ended:
			d.manager.stopping()
			group.Stop(nil)
			if panicked := group.Wait(); panicked != nil {
				return panicked
			}
			return finalError(ctx, err, d.once && stopper.count > 0, e)
		case <-stopper.late.C:
			return errStoppedAtOnce
		case s := <-signals:
			switch {
			case isHangup(s) && stopper.count > 0:
			case isHangup(s) && d.reloads:
				con.notice("penstock: hangup: reloading the config", "reloading", "signal", s.String())
				reloads.request()
			default:
				stopper.signal(s)
			}
		case <-tick.C:
			if con.view != nil {
				con.view.draw(seen.lines(e.Status()))
			} else {
				con.progress(e.Status())
			}
		}
	}
}

// stopper drains an engine when the first signal arrives, and stops it when the second one arrives.
type stopper struct {
	p       *program
	e       runner
	manager *serviceManager
	con     *console
	cancel  context.CancelCauseFunc // stops the engine immediately
	late    *time.Timer             // started by the second signal
	count   int                     // number of signals so far
}

// signal drains the engine when it is first called, and stops the engine when it is called again.
func (s *stopper) signal(sig os.Signal) {
	s.con.interrupted = true
	if s.count++; s.count > 1 {
		s.cancel(errStoppedAtOnce)
		s.late.Reset(s.p.stopping)
		return
	}
	line := fmt.Sprintf("penstock: %v: finishing in-flight batches; a second signal stops at "+
		"once", sig)
	s.con.notice(line, "draining", "signal", sig.String())
	s.manager.stopping()
	s.e.Drain()
}
