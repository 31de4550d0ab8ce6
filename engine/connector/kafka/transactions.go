package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/commitmeta"
)

// job is a batch that waits for its transaction, or the spans of a batch without records.
type job struct {
	spans   []stream.Span
	ranges  []stream.Range
	records []*kgo.Record
	bytes   int64         // size of the records' values
	done    chan struct{} // closed when the fields below are final
	fates   []error       // by index in the records; not nil for records that the brokers refused
	err     error
}

func newJob(spans []stream.Span) *job {
	j := &job{spans: slices.Clone(spans), done: make(chan struct{})} // it may outlive the batch
	for i := range spans {
		j.ranges = append(j.ranges, spans[i].Range)
	}
	return j
}

func (j *job) add(records ...*kgo.Record) {
	j.records = append(j.records, records...)
	j.fates = make([]error, len(j.records))
	for _, r := range records {
		j.bytes += int64(len(r.Value))
	}
}

func (j *job) finish(err error) {
	j.err = err
	close(j.done)
}

// ownershipState states whether this process owns a source partition, and so may run its
// transactions.
//
//	taken ──▶ confirmed ──▶ ended
//	  └───────────────────────┘
type ownershipState uint8

const (
	ownershipTaken     ownershipState = iota // earlier owners are fenced; not confirmed yet
	ownershipConfirmed                       // jobs are accepted
	ownershipEnded                           // released, or fenced by another process
)

// errReleased is the reason of a FencedError after the end of an assignment.
var errReleased = errors.New("its assignment has ended or is not confirmed")

// transactions runs the transactions of one source partition in one assignment, one after the
// other. A transaction contains the waiting jobs, up to maxTransaction bytes. When Take has
// returned, the goroutine of the method run sends all requests, except that closeProducer may abort
// the last transaction.
type transactions struct {
	s          *transactionalSink
	part       stream.Partition
	key        topicPartition
	assignment uint32
	id         string // transactional id
	producer   *kgo.Client
	ctx        context.Context // ends with the assignment
	cancel     context.CancelCauseFunc
	wake       chan struct{} // capacity 1: the queue has changed
	closing    sync.Once

	progress progress // as committed; owned by run's goroutine after Take
	limit    int      // maximum bytes of a commit's metadata; owned like progress

	open atomic.Bool  // a transaction is open; closeProducer may run beside run's goroutine
	ends atomic.Int64 // responses to requests that end a transaction

	mu    sync.Mutex // guards the fields below
	state ownershipState
	queue []*job
}

func (p *transactions) confirm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == ownershipTaken {
		p.state = ownershipConfirmed
	}
}

// fenced returns the error for a delivery that this process must not make, because it does not own
// the partition.
func (p *transactions) fenced(reason error) error {
	return &stream.FencedError{Assignment: p.assignment, Part: p.part, Err: reason}
}

// end ends the assignment. The waiting jobs and all new jobs fail. end cancels the running
// transaction, but does not wait for its end.
func (p *transactions) end(reason error) {
	p.mu.Lock()
	jobs := p.queue
	p.queue, p.state = nil, ownershipEnded
	p.mu.Unlock()
	p.cancel(reason)
	for _, j := range jobs {
		j.finish(p.fenced(reason))
	}
}

func (p *transactions) enqueue(j *job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != ownershipConfirmed {
		reason := errReleased
		if p.ctx.Err() != nil {
			reason = context.Cause(p.ctx)
		}
		return p.fenced(reason)
	}
	p.queue = append(p.queue, j)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// requeue puts a job (a batch to deliver) that was taken from the queue into it again. If the
// assignment has ended, the job fails.
func (p *transactions) requeue(j *job) {
	if err := p.enqueue(j); err != nil {
		j.finish(err)
	}
}

// withdraw removes a job (a batch to deliver) that still waits in the queue. It has no effect on a
// job in a transaction.
func (p *transactions) withdraw(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = slices.DeleteFunc(p.queue, func(q *job) bool { return q == j })
}

// maxTransaction bounds the bytes of a transaction's records. The first job may exceed it.
const maxTransaction = 8 << 20

// next returns the jobs (batches to deliver) of the next transaction, in the order of their
// offsets. It returns nil at the end of the assignment.
func (p *transactions) next() []*job {
	for {
		p.mu.Lock()
		n, bytes := 0, int64(0)
		for n < len(p.queue) && (n == 0 || bytes+p.queue[n].bytes <= maxTransaction) {
			bytes += p.queue[n].bytes
			n++
		}
		jobs := slices.Clone(p.queue[:n])
		p.queue = slices.Delete(p.queue, 0, n)
		p.mu.Unlock()
		if n > 0 {
			slices.SortStableFunc(jobs,
				func(a, b *job) int { return a.spans[0].From.Compare(b.spans[0].From) })
			return jobs
		}
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return nil
		}
	}
}

// watch ends the assignment when ctx is done.
func (p *transactions) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		p.end(errReleased)
	case <-p.ctx.Done():
	}
	return nil
}

// run runs transactions until the assignment ends or another process fences this one.
func (p *transactions) run(context.Context) error {
	defer p.closeProducer()
	for jobs := p.next(); jobs != nil; jobs = p.next() {
		for len(jobs) > 0 {
			jobs = p.transact(p.fitting(jobs))
		}
	}
	return nil
}

// closeProducer closes the producer. It tries to abort an open transaction first, so that consumers
// need not wait for the transaction timeout.
func (p *transactions) closeProducer() {
	p.closing.Do(func() {
		p.end(errReleased)
		if p.open.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_ = p.abortOnce(ctx) // on failure, the timeout or the next owner ends it
		}
		if p.producer != nil {
			p.producer.Close()
		}
	})
}

// fitting returns the jobs that can be delivered in one transaction. It finishes the following jobs
// at once:
//
//   - A job that was delivered before succeeds.
//   - A job fails if only a part of it was delivered before.
//   - A job with ranges that do not fit into the metadata of a commit counts as throttled.
//
// If several jobs have common offsets, fitting returns the first of them and requeues the others,
// which wait for its outcome.
func (p *transactions) fitting(jobs []*job) (fit []*job) {
	after := p.progress
	for _, j := range jobs {
		before := p.progress.coverageOf(j.ranges)
		switch {
		case before == covered:
			p.s.host.Count("duplicates", int64(len(j.records)))
			j.finish(nil)
			continue
		case before == partlyCovered:
			j.finish(fmt.Errorf("kafka: partition %q: a part of the batch from %d to %d was "+
				"delivered before", p.part.Name, j.spans[0].From.Num, j.spans[len(j.spans)-1].To.Num))
			continue
		case after.coverageOf(j.ranges) != uncovered: // a copy: waits for the first job's outcome
			p.requeue(j)
			continue
		}
		next := after.with(j.ranges)
		_, stored := commitmeta.Encode(next.mark(p.part), p.limit)
		if len(stored) < len(next.above) {
			j.finish(&stream.Throttled{Err: fmt.Errorf("kafka: partition %q has %d unsettled gaps, more "+
				"than the metadata of a commit holds; the batches before must be delivered first",
				p.part.Name, len(next.above))})
			continue
		}
		after, fit = next, append(fit, j)
	}
	return fit
}

// transact delivers jobs (batches) in one transaction and finishes them. If the brokers do not
// accept records of some jobs, it aborts the transaction, finishes these jobs, and returns the
// others, which need another transaction.
func (p *transactions) transact(jobs []*job) (rest []*job) {
	if len(jobs) == 0 {
		return nil
	}
	next := p.progress
	records := 0
	for _, j := range jobs {
		next = next.with(j.ranges)
		records += len(j.records)
	}
	var err error
	if records == 0 {
		if err = p.commitOffsets(p.ctx, next); err != nil {
			p.end(err) // outcome unknown: the partition is taken again
		}
	} else {
		var failed bool
		if failed, err = p.produceAll(jobs, next); failed {
			return slices.DeleteFunc(jobs, func(j *job) bool {
				bad := firstError(j.fates) != nil
				if bad {
					j.finish(nil)
				}
				return bad
			})
		}
	}
	if isFencing(err) {
		p.end(err)
	}
	switch {
	case err == nil:
		p.progress = next
		p.s.host.Count("transactions", 1)
	case p.ctx.Err() != nil:
		err = p.fenced(context.Cause(p.ctx))
	case isFatal(err):
		err = &stream.Misconfigured{Err: transactionError(err)}
	}
	for _, j := range jobs {
		j.finish(err)
	}
	return nil
}

// produceAll delivers the records of jobs, and stores next as the group's progress, in one
// transaction. If some records are not accepted, it aborts the transaction and returns true. The
// field fates of a job then has the reasons.
func (p *transactions) produceAll(jobs []*job, next progress) (failed bool, err error) {
	if err := p.producer.BeginTransaction(); err != nil {
		return false, &fencingError{err}
	}
	p.open.Store(true)
	ctx, cancel := context.WithTimeout(p.ctx, transactionTimeout*8/10)
	defer cancel()
	var mu sync.Mutex // guards the fates, refused and fenced
	var fenced error
	refused := false
	for _, j := range jobs {
		for k, r := range j.records {
			p.producer.Produce(ctx, r, func(_ *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				j.fates[k], refused = err, refused || err != nil
				if isFencing(err) {
					fenced = err
				}
			})
		}
	}
	err = p.producer.Flush(ctx)
	if err == nil {
		mu.Lock()
		failed, err = refused, fenced
		mu.Unlock()
		if !failed {
			err = p.sendOffsets(ctx, next)
		}
	}
	if failed || err != nil {
		p.s.host.Count("transactions_aborted", 1)
		if aborted := p.abort(); aborted != nil {
			return false, errors.Join(err, aborted)
		}
		return failed && err == nil, err
	}
	return false, p.commit(ctx, next)
}

// commit commits the transaction. If the response is an error or does not arrive, it is not known
// whether the brokers have committed the transaction. commit then tries to abort it, and reads the
// outcome from the group's offsets.
//
// If the client library takes a transaction for empty, it returns nil without a request. In one run
// of a test, it did so although a record had been produced. The transaction is then still open. So
// without a response, the engine must take the partition again, which aborts the transaction.
func (p *transactions) commit(ctx context.Context, next progress) error {
	ends := p.ends.Load()
	err := p.producer.EndTransaction(ctx, kgo.TryCommit)
	if err == nil && p.ends.Load() == ends {
		return &fencingError{fmt.Errorf("the client did not send the commit of the transaction of "+
			"partition %q", p.part.Name)}
	}
	if err == nil {
		p.open.Store(false)
		return nil
	}
	if aborted := p.abort(); aborted != nil {
		return errors.Join(err, aborted)
	}
	stored, failed := p.s.storedOffsets(p.ctx, p.key)
	if failed != nil {
		return &fencingError{errors.Join(err, failed)} // outcome unknown: Take reads offsets again
	}
	before := p.progress
	if stored.of(p) && p.progress.equal(next) {
		return nil
	}
	if !p.progress.equal(before) {
		return &fencingError{fmt.Errorf("the group's offset of partition %q was set by other software: %w",
			p.part.Name, err)}
	}
	p.s.host.Count("transactions_aborted", 1)
	return err
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (p *transactions) OnBrokerRead(
	_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error,
) {
	if err == nil && key == int16(kmsg.EndTxn) {
		p.ends.Add(1)
	}
}

// abortBackoff paces the attempts to abort a transaction while brokers do not answer.
var abortBackoff = backoff.Exponential(50*time.Millisecond, 2, 2*time.Second).Full()

// abort aborts the open transaction, and retries until the brokers confirm it. An error means that
// the assignment has ended, or that the engine must take the partition again (isFencing).
func (p *transactions) abort() error {
	return retry.Do(p.ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, transactionTimeout)
		defer cancel()
		return p.abortOnce(ctx)
	}, retry.Options{Policy: abortBackoff, MaxAttempts: -1, Classify: func(err error) retry.Action {
		if isFencing(err) {
			return retry.Fail
		}
		return retry.Retry
	}})
}

func (p *transactions) abortOnce(ctx context.Context) error {
	err := p.producer.AbortBufferedRecords(ctx)
	if err == nil {
		err = p.producer.EndTransaction(ctx, kgo.TryAbort)
	}
	if err == nil {
		p.open.Store(false)
	}
	return err
}
