package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// assignments implements stream.Assignments for one route. The source calls it when a broker
// assigns partitions to this process or revokes them. The books of the route hold the progress of
// each assignment. The type assignments calls the sink and the broker, waits for them, and reports
// errors. It is safe for concurrent use. A goroutine that locks both assignments.mu and the route's
// mu locks assignments.mu first.
type assignments struct {
	r      *route
	ledger stream.PartitionLedger // nil if only the source keeps positions
	bound  bool                   // the sink's ledger stores the positions, not the source

	opened chan struct{} // closed once the reader is open
	ended  chan struct{} // closed after the route's last save
	saving chan struct{} // semaphore of one, held while progress is saved

	mu      sync.Mutex // guards the fields below
	numbers uint32
	taking  map[string]context.CancelCauseFunc // by partition, while Assign works on it
	waiting map[string]chan struct{}           // closed when the sender has no batches of a partition
	renewed map[uint32]bool                    // by assignment number; set while renew runs for it
}

var (
	errNotOwned   = errors.New("the broker has given the partition to another process")
	errRouteEnded = errors.New("the route has ended")
)

// newAssignments returns the assignments of a route, or nil if no broker assigns partitions to the
// source. bound means that the sink stores the positions of the route. Otherwise the source stores
// them. newAssignments returns an error if the sink keeps one ledger (its own record of the
// progress) for the whole route: processes that share the partitions need a ledger for each
// partition.
func newAssignments(r *route, ledgered stream.TransactionalSink, bound bool) (*assignments, error) {
	s, ok := r.pipe.source.(stream.AssignedSource)
	if !ok || !s.HasAssignments() {
		return nil, nil
	}
	a := &assignments{
		r: r, bound: bound, opened: make(chan struct{}), ended: make(chan struct{}), saving: make(chan struct{}, 1),
		taking: make(map[string]context.CancelCauseFunc), waiting: make(map[string]chan struct{}),
		renewed: make(map[uint32]bool),
	}
	for _, name := range []string{
		"partitions_assigned", "partitions_revoked", "partitions_lost", "partitions_taken_again",
		"revoked_in_flight",
	} {
		r.host.Count(name, 0)
	}
	if ledgered == nil {
		return a, nil
	}
	if a.ledger, ok = ledgered.(stream.PartitionLedger); !ok {
		return nil, fmt.Errorf("sink %s keeps one ledger for the whole route, and the partitions "+
			"of source %s move between processes, "+
			"which would fence each other off; use a sink without a ledger, or one with a ledger for each partition",
			r.cfg.Sink.Component.Name, r.pipe.cfg.Source.Component.Name)
	}
	return a, nil
}

// commits reports whether the source's reader stores the positions of the route, usually at the
// broker. If not, the sink stores them together with the data.
func (a *assignments) commits() bool { return a == nil || !a.bound }

// keepBooks makes the books k distinguish assignments: k then keeps the progress of a partition
// separately for each time that the broker assigns it to this process.
func (a *assignments) keepBooks(k *books) {
	k.assigned = &assigned{stores: a.ledger == nil, ended: make(map[uint32]*endedAssignment)}
	k.resume = k.startOf
}

// open checks the type of the reader that the source has opened for the route, and lets the
// waiting calls of Assign and Revoke continue.
func (a *assignments) open(reader stream.Reader) error {
	if a == nil {
		return nil
	}
	if _, ok := reader.(stream.AssignedReader); !ok {
		return fmt.Errorf("the source opened a %T, want a stream.AssignedReader", reader)
	}
	close(a.opened)
	return nil
}

// end makes all waiting calls return. It is called after the route's goroutines have stopped.
func (a *assignments) end() {
	if a == nil {
		return
	}
	close(a.ended)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.taking {
		cancel(errRouteEnded)
	}
}

// awaitOpen waits until the reader is open. It returns an error if the route or ctx ends first.
func (a *assignments) awaitOpen(ctx context.Context) error {
	if isClosed(a.ended) {
		return errRouteEnded
	}
	select {
	case <-a.opened:
		return nil
	case <-a.ended:
		return errRouteEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Assign implements stream.Assignments.
func (a *assignments) Assign(ctx context.Context, offers []stream.PartitionOffer) ([]stream.Assignment, error) {
	if err := checkOffers(offers); err != nil {
		return nil, fmt.Errorf("assign: %w", err)
	}
	if err := a.awaitOpen(ctx); err != nil {
		return nil, fmt.Errorf("assign: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first, err := a.beginTaking(offers, cancel)
	if err != nil {
		return nil, fmt.Errorf("assign: %w", err)
	}
	defer a.endTaking(offers)
	taken, err := a.take(ctx, offers, first)
	if err == nil {
		err = a.checkAllOwned(ctx, offers)
	}
	out := make([]stream.Assignment, len(offers))
	for i := range offers {
		out[i] = stream.Assignment{Number: first + uint32(i), Err: err}
		if err == nil {
			out[i].Mark, out[i].Err = a.begin(&offers[i], out[i].Number, taken[i])
		}
		if out[i].Err != nil && a.ledger != nil {
			a.ledger.Release([]uint32{out[i].Number})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("assign: %w", err)
	}
	return out, nil
}

// beginTaking reserves consecutive assignment numbers, one for each offer, and returns the first.
func (a *assignments) beginTaking(offers []stream.PartitionOffer,
	cancel context.CancelCauseFunc) (first uint32, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if isClosed(a.ended) {
		return 0, errRouteEnded
	}
	for i := range offers {
		if a.taking[offers[i].Part.ID] != nil {
			return 0, fmt.Errorf("partition %q is being assigned already", offers[i].Part.ID)
		}
	}
	for i := range offers {
		a.taking[offers[i].Part.ID] = cancel
	}
	first = a.numbers + 1
	a.numbers += uint32(len(offers))
	return first, nil
}

func (a *assignments) endTaking(offers []stream.PartitionOffer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range offers {
		delete(a.taking, offers[i].Part.ID)
	}
}

// takeBackoff is the wait between failed attempts to take partitions in the sink's ledger, or to
// ask the broker whether this process owns them.
var takeBackoff = backoff.Exponential(250*time.Millisecond, 2, 5*time.Second).Full()

// take makes this process the owner of the offered partitions in the sink's ledger. After that, the
// ledger rejects writes of their earlier owners. take does nothing if there is no ledger.
func (a *assignments) take(ctx context.Context, offers []stream.PartitionOffer, first uint32) ([]*stream.Taken, error) {
	out := make([]*stream.Taken, len(offers))
	if a.ledger == nil {
		return out, nil
	}
	asked := make([]stream.Taking, len(offers))
	for i := range offers {
		asked[i] = takingOf(&offers[i], first+uint32(i))
	}
	taken, err := a.takeAll(ctx, asked)
	for i := range taken {
		out[i] = &taken[i]
	}
	return out, err
}

func (a *assignments) takeAll(ctx context.Context, asked []stream.Taking) ([]stream.Taken, error) {
	return retry.Value(ctx, func(ctx context.Context) ([]stream.Taken, error) {
		taken, err := a.ledger.Take(ctx, asked)
		if err == nil && len(taken) != len(asked) {
			err = fmt.Errorf("sink %s: Take of %d partitions returned %d",
				a.r.cfg.Sink.Component.Name, len(asked), len(taken))
		}
		return taken, err
	}, a.r.host.retryForever(takeBackoff, "the sink cannot take over partitions yet; retrying"))
}

// If the sink has a ledger, checkAllOwned returns an error unless the broker confirms that this
// process owns all offered partitions. The whole call of Assign then fails. It would not be enough
// to set [stream.Assignment.Err] for one partition, because the source would not offer that
// partition again.
func (a *assignments) checkAllOwned(ctx context.Context, offers []stream.PartitionOffer) error {
	for i := range offers {
		if err := a.checkOwned(ctx, offers[i].Part.ID); err != nil {
			return fmt.Errorf("partition %q: %w", offers[i].Part.Name, err)
		}
	}
	return nil
}

// begin opens the account (the progress in memory) of one assigned partition, and returns the
// position at which the source must resume. If the sink has a ledger, the caller has just asked the
// broker, which has confirmed that this process owns the partition.
func (a *assignments) begin(o *stream.PartitionOffer, number uint32,
	taken *stream.Taken) (stream.Mark, error) {
	at, behind, err := resumeAt(o, taken)
	if err != nil {
		a.r.host.Fault(err)
		return stream.Mark{}, err
	}
	if behind {
		a.r.host.log.Warn("the sink's ledger is behind the committed position; "+
			"the missing data is delivered again",
			"partition", o.Part.Name, "committed", o.Watermark.Num, "held", at.Watermark.Num)
	}
	a.r.mu.Lock()
	err = a.r.books.assign(at, number, taken != nil && taken.Found)
	a.r.mu.Unlock()
	if err != nil {
		a.r.host.Fault(err)
		return stream.Mark{}, err
	}
	if a.ledger != nil {
		a.ledger.Confirm([]uint32{number})
	}
	a.r.host.Count("partitions_assigned", 1)
	return at, nil
}

// revocation is one partition of a call of Revoke.
type revocation struct {
	id     string
	number uint32
	idle   chan struct{} // closed when the sender has no batches of the partition
}

// Revoke implements stream.Assignments.
func (a *assignments) Revoke(ctx context.Context, partitionIDs []string) {
	if a.awaitOpen(ctx) != nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stream.RevokeTimeout, errors.New("the time for a revocation is over"))
	defer cancel()
	revoked := a.beginRevoking(partitionIDs)
	if len(revoked) == 0 {
		return
	}
	a.settled()
	a.r.sender.sender.Withdraw()
	for _, v := range revoked {
		select {
		case <-v.idle:
		case <-a.ended:
			return // the last save of the route has saved its progress
		case <-ctx.Done():
		}
	}
	a.commitRevoked(ctx, revoked)
}

func (a *assignments) beginRevoking(ids []string) []revocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []revocation
	for _, id := range ids {
		a.r.mu.Lock()
		number := a.r.books.revoke(id)
		a.r.mu.Unlock()
		if number != 0 {
			v := revocation{id: id, number: number, idle: make(chan struct{})}
			a.waiting[id] = v.idle
			out = append(out, v)
		}
	}
	return out
}

// commitRevoked saves the progress of revoked partitions and ends their assignments.
func (a *assignments) commitRevoked(ctx context.Context, revoked []revocation) {
	err := a.save(ctx, a.r.saver.sync)
	numbers := make([]uint32, 0, len(revoked))
	for _, v := range revoked {
		a.r.mu.Lock()
		out, ok := a.r.books.end(v.id, v.number, false)
		a.r.mu.Unlock()
		if !ok {
			continue // it was lost while Revoke waited
		}
		numbers = append(numbers, v.number)
		a.r.host.Count("partitions_revoked", 1)
		if out > 0 {
			a.r.host.Count("revoked_in_flight", out)
			a.r.host.log.Warn("a partition was revoked before its deliveries had ended; the next owner may repeat them",
				"partition", v.id, "positions", out)
		}
	}
	a.forget(revoked)
	if a.ledger != nil {
		a.ledger.Release(numbers)
	}
	if err != nil && len(numbers) > 0 {
		a.r.host.log.Warn("the progress of revoked partitions could not be committed; their next "+
			"owner may repeat deliveries",
			"partitions", len(numbers), "error", err)
	}
}

func (a *assignments) forget(revoked []revocation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range revoked {
		if a.waiting[v.id] == v.idle {
			delete(a.waiting, v.id)
		}
	}
}

// Lost implements stream.Assignments.
func (a *assignments) Lost(partitionIDs []string) {
	var numbers []uint32
	cancels := false
	for _, id := range partitionIDs {
		a.r.mu.Lock()
		number, c := a.r.books.lose(id)
		a.r.mu.Unlock()
		if number != 0 {
			numbers = append(numbers, number)
		}
		cancels = cancels || c
	}
	if cancels {
		a.r.sender.sender.Withdraw()
	}
	if len(numbers) == 0 {
		return
	}
	if a.ledger != nil {
		a.ledger.Release(numbers)
	}
	a.settled()
	a.r.host.Count("partitions_lost", int64(len(numbers)))
	a.r.host.log.Warn("the broker has given partitions to another process; their running deliveries are canceled",
		"partitions", len(numbers))
}

// settled ends the wait of each call of Revoke that has nothing more to wait for: no batch of its
// partition is in the sender any more, or the partition was lost. It is called after each change
// that may have this effect.
func (a *assignments) settled() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, idle := range a.waiting {
		a.r.mu.Lock()
		p := a.r.books.parts[id]
		waits := p != nil && p.assignment.revoking && p.assignment.sent > 0
		a.r.mu.Unlock()
		if !waits {
			close(idle)
			delete(a.waiting, id)
		}
	}
}

// fenced is called with the error of a delivery or of another write to the sink's ledger. A
// FencedError usually means that another process has become the owner of the partition in the
// ledger. fenced then starts renew for the assignment, unless renew is already running for it.
func (a *assignments) fenced(err error) {
	if a == nil || a.ledger == nil {
		return
	}
	f, ok := errors.AsType[*stream.FencedError](err)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.renewed[f.Assignment] {
		return
	}
	a.renewed[f.Assignment] = true
	a.r.host.Go("partition ownership", func(ctx context.Context) error {
		defer func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.renewed, f.Assignment)
		}()
		a.renew(ctx, f)
		return nil
	})
}

// renew is called after a FencedError: usually, another process has become the owner of a partition
// in the sink's ledger. renew asks the broker whether this process still owns the partition. If so,
// the other process is a former owner that took the ledger too late, and renew makes this process
// the owner in the ledger again. Otherwise the assignment is lost. While the broker or the sink is
// unavailable, renew retries with backoff. If the ledger no longer has the partition, renew ends
// the route. The next start of the route then decides where its partitions resume.
func (a *assignments) renew(ctx context.Context, f *stream.FencedError) {
	current := func() bool {
		a.r.mu.Lock()
		defer a.r.mu.Unlock()
		return a.r.books.assignedAs(f.Part.ID, f.Assignment) != nil
	}
	var found bool
	err := retry.Do(ctx, func(ctx context.Context) (err error) {
		if current() {
			found, err = a.takeAgain(ctx, f)
		}
		return err
	}, retry.Options{Policy: takeBackoff, MaxAttempts: -1, Classify: func(err error) retry.Action {
		if errors.Is(err, errNotOwned) {
			return retry.Fail
		}
		return retry.Retry
	}})
	switch {
	case ctx.Err() != nil || !current():
	case err != nil:
		a.r.host.log.Warn("a partition is given up", "partition", f.Part.Name, "error", err)
		a.Lost([]string{f.Part.ID})
	case !found:
		a.r.host.stop(fmt.Errorf("partition %q: the sink's ledger does not have it any more", f.Part.Name))
	default:
		a.ledger.Confirm([]uint32{f.Assignment})
	}
}

// takeAgain makes this process the owner of a partition in the sink's ledger again. Before and
// after that, it asks the broker whether this process owns the partition. found reports whether the
// ledger has the partition.
func (a *assignments) takeAgain(ctx context.Context, f *stream.FencedError) (found bool, err error) {
	if err := a.checkOwned(ctx, f.Part.ID); err != nil {
		return false, err
	}
	a.r.host.Count("partitions_taken_again", 1)
	taken, err := a.takeAll(ctx, []stream.Taking{{Assignment: f.Assignment, Part: f.Part, MustExist: true}})
	if err != nil {
		return false, err
	}
	return taken[0].Found, a.checkOwned(ctx, f.Part.ID)
}

// checkOwned asks the broker whether this process owns a partition, and returns errNotOwned if not.
// If the sink has no ledger, it does nothing.
func (a *assignments) checkOwned(ctx context.Context, id string) error {
	if a.ledger == nil {
		return nil
	}
	owned, err := retry.Value(ctx, func(ctx context.Context) (bool, error) {
		return a.r.reader.reader.(stream.AssignedReader).Owns(ctx, id)
	}, retry.Options{Policy: takeBackoff, MaxElapsed: stream.RevokeTimeout})
	if err == nil && !owned {
		err = errNotOwned
	}
	return err
}

// withdrawal decides about a batch in the sender. If the assignment of the batch is ending or has
// ended, the sender must withdraw the batch instead of delivering it. The result also states
// whether running attempts are canceled.
func (a *assignments) withdrawal(it stream.Item) flow.Withdrawal {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	return a.r.books.withdrawal(it.Value)
}

// send notes that b is now in the sender.
func (a *assignments) send(b *stream.Batch) {
	if a == nil {
		return
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.r.books.addSent(b, 1)
}

// withdraw is called when the sender has withdrawn b, because b's assignment is ending or has
// ended. It subtracts b from the counts. The next owner of the partition reads the records of b.
func (a *assignments) withdraw(b *stream.Batch) {
	a.r.mu.Lock()
	a.r.books.withdraw(b)
	a.r.mu.Unlock()
	a.settled()
}

// save calls f, which saves the progress of the route. Both the saver and a revocation save it, so
// save waits until no other call is running. A route without assignments has no revocations, so
// save only calls f.
func (a *assignments) save(ctx context.Context, f func(context.Context) error) error {
	if a == nil {
		return f(ctx)
	}
	select {
	case a.saving <- struct{}{}:
	case <-ctx.Done():
		return &retryableError{context.Cause(ctx)}
	}
	defer func() { <-a.saving }()
	return f(ctx)
}

// current removes the marks (the progress of partitions) of ended assignments from marks, and
// returns the rest. It overwrites the argument.
func (a *assignments) current(marks []stream.Mark) []stream.Mark {
	if a == nil {
		return marks
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	kept := marks[:0]
	for i := range marks {
		if a.r.books.assignedAs(marks[i].Part.ID, marks[i].Assignment) != nil {
			kept = append(kept, marks[i])
		}
	}
	return kept
}

// stored is called when the source's reader has stored the marks (the progress of partitions) at
// the broker. The bytes that these marks cover then no longer count as unsaved. If the sink's
// ledger stores the progress, stored does nothing.
func (a *assignments) stored(marks []stream.Mark) {
	if a == nil || a.ledger != nil {
		return
	}
	a.r.mu.Lock()
	bytes := a.r.books.stored(marks)
	a.r.mu.Unlock()
	if bytes > 0 {
		a.r.sender.saved(bytes)
	}
}

// stale reports whether the assignment of a batch with these spans has ended.
func (a *assignments) stale(spans []stream.Span) bool {
	if a == nil || len(spans) == 0 {
		return false
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	return a.r.books.current(&spans[0]) == nil
}
