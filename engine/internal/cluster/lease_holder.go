package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

// LeaseHolder acquires one lease in a Register (a key of the bucket) and renews it.
type LeaseHolder struct {
	register Register
	name     string // name of the lease, for messages
	lease    *Lease // used by Run only
	clock    func() time.Duration
	log      *slog.Logger
	renewNow chan struct{} // buffer of 1; requests an immediate renewal
	failing  bool          // the last request failed; used by request only

	mu      sync.Mutex // guards the fields below
	view    View
	changed chan struct{} // closed and replaced when publish changes view
}

// View is the state of a lease as known to this process.
type View struct {
	Owner    string        // "" if there is no owner, or nothing is known
	Epoch    uint64        // epoch of the owner
	Owned    bool          // this process may act as the owner
	Answered time.Duration // time of the last response by the clock of the lease holder; 0 if none
	Takeover uint64        // number of times that this process has become the owner
	Failure  string        // error of the last request; "" if it succeeded
	Starved  uint64        // number of timers that were late by more than starvedAfter

	renewed time.Duration // time when the last successful renewal was sent
}

// newLeaseHolder returns a LeaseHolder for a new Lease. It sends nothing before Run.
func newLeaseHolder(r Register, name string, l *Lease, now func() time.Duration,
	log *slog.Logger) *LeaseHolder {
	return &LeaseHolder{
		register: r, name: name, lease: l, clock: now, log: log,
		renewNow: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// View returns the state of the lease as known to this process.
func (k *LeaseHolder) View() View {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.view
}

// publish makes the present state of the lease visible to View and Confirm. takeover reports that
// this process has just become the owner.
func (k *LeaseHolder) publish(now time.Duration, takeover bool) {
	held := k.lease.Held()
	renewed, _ := k.lease.Renewed()
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.view
	v.Owner, v.Epoch, v.Owned, v.renewed = held.Owner, held.Epoch, k.lease.Owns(now), renewed
	if takeover {
		v.Takeover++
	}
	if v != k.view {
		k.view = v
		close(k.changed)
		k.changed = make(chan struct{})
	}
}

// answered notes a response of the bucket.
func (k *LeaseHolder) answered(at time.Duration) {
	if k.failing {
		k.log.Info("lease can be read again", "lease", k.name)
	}
	k.failing = false
	k.mu.Lock()
	defer k.mu.Unlock()
	k.view.Answered, k.view.Failure = at, ""
}

// failed notes a failed request. It logs the first of consecutive failures as a warning, and the
// others at level debug.
func (k *LeaseHolder) failed(ctx context.Context, message string, err error) {
	if ctx.Err() != nil {
		return // this process is stopping
	}
	level := slog.LevelWarn
	if k.failing {
		level = slog.LevelDebug
	}
	k.failing = true
	k.log.Log(ctx, level, message, "lease", k.name, "error", err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.view.Failure = message + ": " + err.Error()
}

// Tenure is one period of ownership, from a takeover to the loss of the lease.
type Tenure struct {
	Epoch  uint64 // higher than that of each earlier owner
	holder *LeaseHolder
}

// Confirm waits until a renewal succeeds that was sent after the call of Confirm. Such a renewal
// proves that no other process was the owner when Confirm was called. If ctx ends first, Confirm
// returns its cause. Pass the context of the Work, which ends when the ownership ends. With
// another context, Confirm may wait although the lease is lost.
func (t Tenure) Confirm(ctx context.Context) error {
	k := t.holder
	asked := k.clock()
	select {
	case k.renewNow <- struct{}{}:
	default:
	}
	for {
		k.mu.Lock()
		v, changed := k.view, k.changed
		k.mu.Unlock()
		if v.Owned && v.Epoch == t.Epoch && v.renewed >= asked {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// work is a running call of a Work function.
type work struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
	lost   bool  // the lease was lost before the work ended; set before ended is closed
	err    error // result of the work; set before ended is closed
}

// ErrNotOwner is the cause with which the context of a Work ends when the lease is lost.
var ErrNotOwner = errors.New("another process may own the lease")

// Work is a function that runs while this process owns the lease. ctx ends with the ownership.
type Work func(ctx context.Context, t Tenure) error

// Run tries to own the lease until ctx is done. Each time this process becomes the owner, Run calls
// the function do. When the process loses the lease, the context of this call ends. The function
// should then return soon, because Run cannot call it again before that.
//
// If do returns while the process owns the lease, Run ends and returns the error of do. Before Run
// returns, it usually gives the lease back (see release).
func (k *LeaseHolder) Run(ctx context.Context, do Work) error {
	group := supervise.NewGroup(ctx)
	var now *work
	done := make(chan func(), 1) // receives functions that report results to the lease
	busy := false
	for ctx.Err() == nil {
		owns := k.lease.Owns(k.clock())
		begins := now == nil && owns
		k.publish(k.clock(), begins)
		if begins {
			now = k.begin(group, do)
		} else if now != nil && !owns {
			now.cancel(ErrNotOwner)
		}
		wait := k.untilLoss(owns)
		if !busy {
			c := k.lease.Next(k.clock())
			if busy = c.Kind != Wait; busy {
				group.Go("lease request", func(ctx context.Context) error {
					done <- k.request(ctx, c)
					return nil
				})
			} else {
				wait = min(wait, c.At-k.clock())
			}
		}
		var ended chan struct{}
		if now != nil {
			ended = now.ended
		}
		due := k.clock() + max(wait, 0)
		timer := time.NewTimer(max(wait, 0))
		select {
		case tell := <-done:
			tell()
			busy = false
		case <-k.renewNow:
			k.lease.RenewNow()
		case <-ended:
			if !now.lost {
				timer.Stop()
				return k.finish(ctx, group, now, done, busy)
			}
			now = nil
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		k.checkTimer(due)
	}
	return k.finish(ctx, group, now, done, busy)
}

// If a timer is late by more than starvedAfter, this process counts as starved: it was suspended or
// got no CPU time. A lease may then expire although its owner is alive.
const starvedAfter = 2 * time.Second

// checkTimer counts a timer of Run if it was late by more than starvedAfter.
func (k *LeaseHolder) checkTimer(due time.Duration) {
	late := k.clock() - due
	if late <= starvedAfter {
		return
	}
	k.mu.Lock()
	k.view.Starved++
	k.mu.Unlock()
	k.log.Warn("this process was suspended or had no CPU time", "lease", k.name,
		"late", late.Round(time.Millisecond))
}

// finish ends the running work, if any, and returns its error. If a request is running (busy is
// true), finish then waits for the result in done. At the end it gives the lease back, so that
// another process can take it at once.
func (k *LeaseHolder) finish(ctx context.Context, group *supervise.Group, now *work,
	done chan func(), busy bool) error {
	var err error
	if now != nil {
		now.cancel(context.Cause(ctx))
		<-now.ended
		err = now.err
	}
	if busy {
		tell := <-done
		tell()
	}
	k.release()
	group.Stop(nil)
	return errors.Join(err, group.Wait())
}

// untilLoss returns the time after which the lease is lost unless it is renewed. If this process
// does not own the lease (owns is false), there is nothing to lose, and untilLoss returns a minute.
func (k *LeaseHolder) untilLoss(owns bool) time.Duration {
	if until, ok := k.lease.OwnedUntil(); owns && ok {
		return until - k.clock()
	}
	return time.Minute
}

func (k *LeaseHolder) begin(group *supervise.Group, do Work) *work {
	t := Tenure{Epoch: k.lease.Epoch(), holder: k}
	k.log.Info("this process owns the lease", "lease", k.name, "epoch", t.Epoch,
		"starved", k.View().Starved)
	w := &work{ended: make(chan struct{})}
	var working context.Context
	var cancel context.CancelCauseFunc
	started := make(chan struct{})
	w.cancel = func(cause error) {
		<-started
		cancel(cause)
	}
	group.Go("owner of the lease", func(ctx context.Context) error {
		defer close(w.ended)
		working, cancel = context.WithCancelCause(ctx)
		close(started)
		defer cancel(nil)
		w.err = do(working, t)
		if w.lost = errors.Is(context.Cause(working), ErrNotOwner); w.lost {
			k.log.Info("this process lost the lease", "lease", k.name, "epoch", t.Epoch,
				"starved", k.View().Starved)
		}
		return nil
	})
	return w
}

// request sends the lease's request c to the bucket. It returns a function that reports the result
// to the lease.
func (k *LeaseHolder) request(ctx context.Context, c Command) func() {
	if c.Kind == Read {
		e, err := k.read(ctx)
		if err != nil {
			k.failed(ctx, "lease cannot be read", err)
			return func() { k.lease.ReadDone(k.clock(), Unknown, Entry{}) }
		}
		at := k.clock()
		k.answered(at)
		return func() { k.lease.ReadDone(at, Done, e) }
	}
	revision, err := k.write(ctx, c)
	switch {
	case err == nil:
		k.answered(k.clock())
		return func() { k.lease.Wrote(Done, revision) }
	case errors.Is(err, ErrConflict):
		k.answered(k.clock())
		return func() { k.lease.Wrote(Conflict, 0) }
	}
	k.failed(ctx, "lease cannot be written", err)
	return func() { k.lease.Wrote(Unknown, 0) }
}

func (k *LeaseHolder) read(ctx context.Context) (Entry, error) {
	s, err := k.register.Read(ctx)
	e := Entry{Found: s.Found, Revision: s.Revision}
	if err != nil || !s.Found {
		return e, err
	}
	if err := json.Unmarshal(s.Data, &e.Value); err != nil {
		return e, fmt.Errorf("its value has an unknown form, perhaps of a newer version: update "+
			"this process, or delete the key: %w", err)
	}
	return e, nil
}

func (k *LeaseHolder) write(ctx context.Context, c Command) (uint64, error) {
	text, err := json.Marshal(c.Value)
	if err != nil {
		return 0, err
	}
	return k.register.Write(ctx, c.Kind == Update, c.Revision, text)
}

// release gives the lease back, so that another process can take it before it expires. If the last
// write failed, it is uncertain whether this process owns the lease. release then lets the lease
// expire.
func (k *LeaseHolder) release() {
	c := k.lease.Release()
	defer func() { k.publish(k.clock(), false) }()
	if c.Kind == Wait {
		return
	}
	if _, err := k.write(context.Background(), c); err != nil {
		k.log.Warn("the lease was not released; it will expire", "lease", k.name, "error", err)
	}
}
