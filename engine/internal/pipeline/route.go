package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/trace"
	"github.com/penstock-io/penstock/engine/manifest"
	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// ErrDraining is the cause with which a reader's context ends when its route accepts nothing more.
var ErrDraining = errors.New("pipeline: draining")

// route is one processors-to-sink path out of a source, with everything that it owns while it runs. It runs once: what
// starts after it has failed is another one, made afresh by its slot.
type route struct {
	key   string // "pipeline/route"
	pipe  *pipe
	slot  *slot
	cfg   config.Route
	once  bool
	stall time.Duration
	host  *host

	sink       stream.Sink
	encoder    stream.Encoder           // nil: the sink sends the batch's own bytes
	syncer     stream.AppendSink        // nil: what the sink has acked is durable
	ledgered   stream.TransactionalSink // nil: the local checkpoint is the truth
	processors []func(stream.Host) (stream.Processor, error)

	memory    *memory
	failures  *failures
	manifest  *manifest.Route // nil: nobody asks
	left      atomic.Int64    // bytes that the source has and nobody has read; -1: it does not tell
	letters   *deadletter.Store
	trace     *trace.File // of what the machine is told and does; nil: nobody asks
	sender    *flow.Sender[*stream.Batch]
	reader    stream.Reader
	pool      *stream.Pool
	budget    *budget
	resumed   *resumed // of a TransactionalSink: wins over the store; nil: it keeps none
	reads     scope
	jobs      chan *job     // to the sender, in read order; nil when there is nothing to process
	readErr   error         // why the reader ended, set before jobs is closed; io.EOF: the data ended
	estimated time.Duration // when the reader was last asked how much is left; the reader's goroutine owns it
	ahead     error         // what the reader said with its last batch, of which the next call tells
	work      chan *job     // to the processors; nil when there is nothing to process
	again     chan *job     // back to them, of which one has died

	steps [maxProcessors]atomic.Pointer[step] // by processor: the step that works on a batch; nil: none does

	gone     []string               // partitions to be forgotten; the checkpoint's goroutine owns it, and
	prunable []string               // those that the sink may drop, once it is durable that they are forgotten, and
	untold   map[string]stream.Mark // by partition, what was saved since source and sink were told last; nil: nothing

	drainOnce sync.Once
	drained   chan struct{} // closed by drain
	quarter   chan struct{} // a quarter of the replay bound has settled: write now
	some      chan struct{} // something has settled: write soon; nil: a write is more than an append, or nobody needs it
	progress  atomic.Int64  // when something last settled, in nanoseconds since started
	opens     atomic.Bool   // sink and reader are open
	reading   atomic.Int64  // when the call of Read that runs began, likewise; 0: none runs
	started   time.Time     // set under mu, before the route's goroutines start

	laneOrder sync.Mutex // held over the changes of laneSet and what the sender is told of them; taken before mu

	mu       sync.Mutex // guards what follows; never held while something else is called
	books    *books
	guard    deadletter.Guard
	health   string
	err      error
	keyed    bool // items carry order keys
	alone    bool // there is one lane, an ordered one: one key says as much as all partitions'
	laneSet  []stream.Lane
	window   string                    // algorithm of the workers' windows; "" before there is a sender
	refusers map[*stream.Batch]refuser // of batches that an attempt did not deliver
	finisher []stream.Partition        // synced and settled, to be finished by the source
}

// The healths of a route.
const (
	healthRunning    = "running"
	healthDraining   = "draining"
	healthFinished   = "finished"
	healthStopped    = "stopped"    // for good
	healthRestarting = "restarting" // it has failed, and starts again by itself
)

// run runs the route until its data ends, it has drained, or ctx is done. It frees what it opened.
func (r *route) run(ctx context.Context) error {
	r.left.Store(-1)
	r.mu.Lock()
	r.started = time.Now()
	r.mu.Unlock()
	err := r.runAll(ctx)
	r.mu.Lock()
	r.err = err
	r.health = healthFinished
	if err != nil {
		r.health = healthStopped
	}
	r.mu.Unlock()
	return err
}

// runAll runs the sender and all that it needs as one group: whatever of it fails ends the others, and the route.
func (r *route) runAll(ctx context.Context) error {
	group := supervise.NewGroup(ctx)
	r.host.group.Store(group)
	var sent error
	group.Go("sender", func(ctx context.Context) error {
		defer r.slot.arrive() // also where it has not come so far
		sent = r.send(ctx, group)
		group.Stop(sent)
		return nil
	})
	failed := group.Wait()
	r.failures.reportDead(true)
	err := joined(r.host.stopped(), sent, failed, r.close())
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.once {
		err = r.books.verdict()
	}
	return err
}

// send opens everything, starts the other goroutines and delivers until all is delivered, or until it cannot go on.
func (r *route) send(ctx context.Context, group *supervise.Group) error {
	ready, err := r.begin(ctx, group)
	if !ready {
		return err
	}
	defer r.reads.end(ErrDraining)
	saveCtx, stopSaving := context.WithCancel(ctx)
	defer stopSaving()
	saved := make(chan struct{})
	group.Go("drain", func(ctx context.Context) error { return r.watchDrain(ctx) })
	if r.work != nil {
		group.Go("reader", func(ctx context.Context) error { r.read(ctx); return nil })
		pool, err := r.newProcessors()
		if err != nil {
			return err
		}
		group.Go("processors", pool.Serve)
	}
	group.Go("checkpoint", func(context.Context) error {
		defer close(saved)
		return r.save(saveCtx)
	})
	if r.once && r.stall > 0 {
		group.Go("stall", r.watchStall)
	}
	err = r.sender.Run(ctx, producer{r})
	r.reads.end(ErrDraining)
	stopSaving()
	<-saved
	return joined(err, r.lastSave(ctx))
}

// joined joins errors, leaving out those that say the same again.
func joined(errs ...error) error {
	var out []error
	for _, err := range errs {
		if err == nil || slices.ContainsFunc(out, func(e error) bool { return errors.Is(e, err) || errors.Is(err, e) }) {
			continue
		}
		out = append(out, err)
	}
	return errors.Join(out...)
}

// open opens sink, dead letters and reader, in this order: what is read must have somewhere to go.
func (r *route) open(ctx context.Context) error {
	o := stream.SinkOptions{Pipeline: r.pipe.name, Route: r.cfg.Name, Lanes: r.setLanes, Once: r.once}
	places := r.memory.places()
	for _, lane := range slices.Sorted(maps.Keys(places)) { // one at most: savePlace
		o.Place = places[lane]
	}
	if reopen := r.slot.reopen.Load(); reopen != nil {
		o.Place = reopen.Place
	}
	if err := r.sink.Open(ctx, o); err != nil {
		return fmt.Errorf("sink %s: %w", r.cfg.Sink.Component.Name, err)
	}
	if err := r.savePlace(places); err != nil {
		return err
	}
	r.slot.reopen.Store(nil) // the checkpoint has the place
	if r.ledgered != nil {
		if err := r.load(ctx); err != nil {
			return err
		}
	}
	err := r.openWaits()
	if err != nil {
		return err
	}
	if err := r.openSender(); err != nil {
		return err
	}
	r.reader, err = r.pipe.source.Open(ctx, stream.OpenOptions{
		Route: r.key, Resume: r.markOf, Known: r.known(), Linger: r.cfg.Batch.Linger, Once: r.once,
		State: r.stateDir, Count: r.slot.met.Add,
	})
	if err != nil {
		return fmt.Errorf("source %s: %w", r.pipe.cfg.Source.Component.Name, err)
	}
	if settlerOf(r) != nil && r.some == nil {
		r.some = make(chan struct{}, 1)
	}
	return r.memory.waits.begin(r.reader)
}

func (r *route) openSender() error {
	r.mu.Lock()
	lanes := r.laneSet
	r.mu.Unlock()
	c, err := controlConfig(r.cfg, lanes)
	if err != nil {
		return err
	}
	traced, err := r.openTrace(c)
	if err != nil {
		return err
	}
	sender, err := flow.New(flow.Options[*stream.Batch]{
		Control: c, MaxBytes: -1, Abandon: r.cfg.Flow.Abandon, Trace: traced,
		Bisect: r.bisect, Bury: r.bury, Settled: r.settled, Released: r.released, Failed: r.failed,
		AwaitRepair: true, Waiting: r.memory.waits.options(),
	})
	if err != nil {
		return err
	}
	r.laneOrder.Lock()
	defer r.laneOrder.Unlock()
	r.mu.Lock()
	lanes = r.laneSet // the sink may have changed them meanwhile
	r.sender = sender
	r.window = c.Window.Name()
	r.keyed = r.cfg.Flow.Order == "partition" || r.cfg.Flow.Order == "" && allOrdered(lanes)
	r.alone = len(lanes) == 1 && allOrdered(lanes)
	r.mu.Unlock()
	return sender.SetLanes(lanes)
}

func allOrdered(lanes []stream.Lane) bool {
	for _, l := range lanes {
		if !l.Limits.Ordered {
			return false
		}
	}
	return len(lanes) > 0
}

// setLanes is what a sink calls with its workers: before the sender exists they are kept for it.
func (r *route) setLanes(lanes []stream.Lane) {
	r.laneOrder.Lock()
	defer r.laneOrder.Unlock()
	r.mu.Lock()
	r.laneSet = lanes
	sender := r.sender
	r.mu.Unlock()
	if sender == nil {
		return
	}
	if err := sender.SetLanes(lanes); err != nil {
		r.host.log.Error("the sink's new list of workers was refused; the old one stays", "error", err)
	}
}

// savePlace makes durable where the sink's ordered lane starts, before anything is delivered to it. saved is what the
// checkpoint has. Places of lanes of other names are forgotten: the file may have been renamed, config and all, and a start to come
// would truncate it to where it stood then.
func (r *route) savePlace(saved map[string]string) error {
	placed, ok := r.sink.(stream.AppendSink)
	r.mu.Lock()
	lanes := r.laneSet
	r.mu.Unlock()
	if !ok || len(lanes) != 1 {
		return nil
	}
	places := r.memory.strays(lanes[0].Name)
	if len(places) == 0 && saved[lanes[0].Name] == placed.StartPlace() {
		return nil
	}
	places[lanes[0].Name] = placed.StartPlace()
	if err := joined(r.memory.save(nil, places), r.memory.synced()); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// drain makes the route accept nothing more.
func (r *route) drain() {
	r.drainOnce.Do(func() {
		r.mu.Lock()
		if r.health == healthRunning {
			r.health = healthDraining
		}
		r.mu.Unlock()
		close(r.drained)
	})
}

// watchDrain stops the reader when the route drains, and the route when that takes longer than its bound.
func (r *route) watchDrain(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.drained:
	}
	if d, ok := r.reader.(stream.DrainingReader); ok {
		d.Drain()
	} else {
		r.reads.end(ErrDraining)
	}
	r.memory.waits.stop()
	bound := time.NewTimer(r.cfg.Drain)
	defer bound.Stop()
	tick := time.NewTicker(inabilityTick)
	defer tick.Stop()
	lost := inability{refusing: true, grace: drainGrace}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-bound.C:
			const late = "draining took longer than %v; what was in flight will be delivered again at the next start"
			r.host.stop(final(fmt.Errorf(late, r.cfg.Drain)))
			return nil
		case <-tick.C:
			if lost.reached(r) {
				const unable = "no worker can deliver, so draining ended; what waits will be delivered at the next start: %s"
				r.host.stop(final(fmt.Errorf(unable, r.trouble())))
				return nil
			}
		}
	}
}

// watchStall stops a finite run in which nothing settles although data waits.
func (r *route) watchStall(ctx context.Context) error {
	tick := time.NewTicker(min(max(r.stall/20, 10*time.Millisecond), inabilityTick))
	defer tick.Stop()
	lost := inability{grace: onceGrace}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		r.mu.Lock()
		unsettled := r.books.counts.unsettled()
		r.mu.Unlock()
		quiet := time.Since(r.started) - time.Duration(r.progress.Load())
		if unsettled == 0 {
			r.progress.Store(int64(time.Since(r.started)))
		} else if quiet >= r.stall {
			r.host.stop(fmt.Errorf("nothing was delivered for %v while %d records wait: %s", r.stall, unsettled, r.trouble()))
			return nil
		}
		if lost.reached(r) {
			r.host.stop(fmt.Errorf("every worker is misconfigured while %d records wait: %s", unsettled, r.trouble()))
			return nil
		}
	}
}

// trouble says in words what keeps the workers from delivering.
func (r *route) trouble() string {
	if s, ok := r.longestStep(); ok && time.Since(s.began) >= r.stall/2 {
		return fmt.Sprintf("%s has worked on one batch for %v", s.name, time.Since(s.began).Round(time.Second))
	}
	if last := r.failures.latest(); last != "" {
		return last
	}
	status, names := r.sender.Status()
	for _, l := range status.Lanes {
		if l.Reason != "" {
			return fmt.Sprintf("worker %s is %s: %s", names[l.Lane], l.State, l.Reason)
		}
	}
	return "no worker says why"
}

func (r *route) close() error {
	var errs []error
	if r.reader != nil {
		errs = append(errs, r.reader.Close())
	}
	errs = append(errs, r.sink.Close())
	if r.memory != nil {
		errs = append(errs, r.memory.waits.close())
	}
	if r.letters != nil {
		errs = append(errs, r.letters.Close())
	}
	r.closeTrace()
	return errors.Join(errs...)
}

// controlConfig turns a route's flow:, retry: and checkpoint: into the machine's config.
func controlConfig(c config.Route, lanes []stream.Lane) (control.Config, error) {
	w, err := windowOf(c.Flow, lanes)
	if err != nil {
		return control.Config{}, err
	}
	d, err := dispatchOf(c.Flow)
	if err != nil {
		return control.Config{}, err
	}
	timeout, err := durationOrAuto(c.Flow.Timeout)
	if err != nil {
		return control.Config{}, fmt.Errorf("flow.timeout: %w", err)
	}
	retry, err := retryPolicy(c.Retry)
	if err != nil {
		return control.Config{}, fmt.Errorf("retry.policy: %w", err)
	}
	return control.Config{
		Seed: uint64(time.Now().UnixNano()), Window: w, Dispatch: d, Timeout: timeout, Retry: retry,
		Replay: int64(c.Checkpoint.Replay), Waiting: waitingOf(c.Retry), End: endOf(c.Retry), Shared: c.Flow.Shared,
		Budget: budgetOf(c.Flow), Poison: poisonOf(c.Flow), Hedge: hedgeOf(c.Flow),
	}, nil
}
