package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// processors are the goroutines of a route that process and encode batches.
type processors struct {
	*core
	line    *line
	letters *letterWriter
	budget  *budget
	encoder stream.Encoder // nil if the sink sends the batch's own bytes

	steps [maxProcessors]atomic.Pointer[step] // the running step of each goroutine; nil if idle
}

// needed reports whether batches need processing: by processors of the config or by the sink's
// encoder.
func (r *processors) needed() bool { return len(r.cfg.Processors) > 0 || r.encoder != nil }

// newLine creates a line: the channels on the way from the reader through the processors to the
// sender. The channels jobs and work each have room for as many batches as there are processing
// goroutines.
func newLine() *line {
	return &line{
		jobs: make(chan *job, processorCount()), work: make(chan *job, processorCount()),
		afterDeath: make(chan *job, jobsAtOnce()),
		reread:     make(chan *job),
	}
}

// processorCount returns the number of processing goroutines: GOMAXPROCS, but at most
// maxProcessors.
func processorCount() int { return min(runtime.GOMAXPROCS(0), maxProcessors) }

// maxProcessors is the maximum number of processing goroutines of one route.
const maxProcessors = 64

// jobsAtOnce is the maximum number of jobs (batches) that are not processed yet. With n processing
// goroutines, there are at most n jobs in the channel jobs, n in the channel work, and one at each
// goroutine. The reader and the sender have one each. Two more may be batches that waited for a
// retry and were read again. The channel line.afterDeath has this capacity, so a send never blocks.
func jobsAtOnce() int { return 3*processorCount() + 4 }

// Run runs the processing goroutines. If one of them panics, Run stops the goroutines and child
// processes that the processors of this goroutine have started. Then Run starts another processing
// goroutine, with new instances of every processor in the config.
func (r *processors) Run(ctx context.Context) error {
	children := make([]supervise.Child, processorCount())
	for n := range children {
		name, idle := fmt.Sprintf("processor-%d", n), new(processorRestarts)
		steps := &r.steps[n]
		children[n] = supervise.Child{
			Name: name, Restart: supervise.Transient, Backoff: idle,
			Run: func(ctx context.Context) error { return r.process(ctx, name, idle, steps) },
		}
	}
	pool, err := supervise.New("processors",
		supervise.Spec{Stagger: -1, Shutdown: atOnce, OnEvent: r.processorEnded}, children...)
	if err != nil {
		return err
	}
	return pool.Serve(ctx)
}

// processorRestarts decides how long to wait before a dead processing goroutine is replaced. Most
// likely a record has killed it. This record is then found by processing the batch again in smaller
// and smaller ranges (see trial), which kills more goroutines. So the first freeDeaths restarts do
// not wait. Further restarts wait with exponential backoff, until the new goroutine has finished a
// batch or a range.
type processorRestarts struct{ deaths atomic.Int32 }

const freeDeaths = 16

var processorWait = backoff.Exponential(100*time.Millisecond, 2, 30*time.Second).Equal()

// Next implements backoff.Policy.
func (f *processorRestarts) Next(s backoff.State, src rand.Source) (wait time.Duration, next backoff.State, ok bool) {
	if f.deaths.Load() <= freeDeaths {
		return 0, backoff.State{}, true
	}
	return processorWait.Next(s, src)
}

func (r *processors) processorEnded(ctx context.Context, e supervise.Event) {
	if e.Kind != supervise.Ended || !e.Restart {
		return
	}
	r.host.Count("processor_deaths", 1)
	if times, due := r.failures.recordFailure(part{name: e.Child}, firstLine(e.Err)); due {
		r.host.log.Log(ctx, slog.LevelWarn, "a processor died; another one processes its batch",
			"processor", e.Child, "times", times, "again_in", e.Delay, "error", e.Err)
	}
}

// process is one run of a processing goroutine. It processes batches until a processor panics or
// there are no more batches.
func (r *processors) process(ctx context.Context, name string, idle *processorRestarts,
	current *atomic.Pointer[step]) error {
	scope := supervise.NewGroup(ctx)
	defer func() { // also after a panic: stop the goroutines of the instances
		scope.Stop(nil)
		_ = scope.Wait() // a failure has already ended the context of scope
	}()
	p := &processor{r: r, name: name, idle: idle, current: current}
	defer current.Store(nil)
	for i, use := range r.cfg.Processors {
		instance, err := Construct[stream.Processor](use, r.host.scoped(scope))
		if err != nil {
			return errors.Join(supervise.ErrEscalate, err)
		}
		p.chain = append(p.chain, instance)
		p.names = append(p.names, fmt.Sprintf("processor %d, %s", i+1, use.Component.Name))
	}
	for {
		j := r.nextJob(ctx)
		if j == nil {
			return nil
		}
		if died := p.work(scope.Context(), j); died != nil {
			return died
		}
	}
}

// nextJob returns the next batch to process. If the processor of a batch has died, this batch comes
// first. nextJob returns nil if there are no more batches or ctx has ended.
func (r *processors) nextJob(ctx context.Context) *job {
	select {
	case j := <-r.line.afterDeath:
		return j
	default:
	}
	select {
	case j := <-r.line.afterDeath:
		return j
	case j := <-r.line.reread:
		return j
	case j := <-r.line.work: // nil if closed
		return j
	case <-ctx.Done():
		return nil
	}
}

// processor is one run of a processing goroutine, with its own instances of all processors in the
// config.
type processor struct {
	r     *processors
	name  string
	chain []stream.Processor
	names []string // names of the chain's steps
	idle  *processorRestarts
	saved *stream.Savepoint

	current *atomic.Pointer[step] // nil between batches
}

// step is one processor of the config that is working on a batch.
type step struct {
	name  string // such as "processor 2, exec"
	began time.Time
}

// longestStep returns the step that has worked on its batch for the longest time. It returns false
// if no batch is being processed.
func (r *processors) longestStep() (longest step, ok bool) {
	for n := range r.steps {
		if s := r.steps[n].Load(); s != nil && (!ok || s.began.Before(longest.began)) {
			longest, ok = *s, true
		}
	}
	return longest, ok
}

// work processes j. If the processor panics, work returns the cause, and passes j to another
// processing goroutine unless the batch must fail (see trial.died).
func (p *processor) work(ctx context.Context, j *job) (died error) {
	if j.saved == nil {
		if p.saved == nil {
			p.saved = new(stream.Savepoint)
		}
		j.saved, p.saved = p.saved, nil
	}
	returned := false
	defer func() {
		if !returned {
			died = &supervise.PanicError{Name: p.name, Value: recover(), Stack: debug.Stack()}
			p.idle.deaths.Add(1)
			p.r.recordDeath(j, died, p.idle)
		}
	}()
	err := p.steps(ctx, j)
	returned = true
	p.r.budget.correct(j.batch)
	p.idle.deaths.Store(0)
	p.r.failures.recovered(part{name: p.name})
	j.err = err
	j.saved, p.saved = nil, j.saved
	close(j.done)
	return nil
}

// steps passes the batch to every processor of the chain, and then to the encoder. After that, it
// writes dead letters for the records that are marked as dead. If maxDeaths processors have died of
// the batch before, steps processes it in ranges of records (see trial).
func (p *processor) steps(ctx context.Context, j *job) error {
	b := j.batch
	if !j.suspect {
		j.saved.Copy(b)
		if err := p.change(ctx, b); err != nil {
			return err
		}
		return p.r.letters.writeMarkedDead(ctx, b)
	}
	for s, more := j.next(); more; s, more = j.next() {
		j.saved.Copy(b)
		states := hide(b, s)
		err := p.change(ctx, b)
		if err != nil {
			return err
		}
		show(b, s, states)
		j.pop()
		p.idle.deaths.Store(0)
	}
	j.saved.Copy(b)
	if err := p.encode(b); err != nil {
		return err
	}
	return p.r.letters.writeMarkedDead(ctx, b)
}

func (p *processor) change(ctx context.Context, b *stream.Batch) error {
	defer p.current.Store(nil)
	for i, processor := range p.chain {
		name := p.names[i]
		p.current.Store(&step{name, time.Now()})
		if err := processor.Process(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		p.r.tapProcessor(b, i)
	}
	return p.encode(b)
}

func (p *processor) encode(b *stream.Batch) error {
	if p.r.encoder == nil || b.Kept() == 0 {
		return nil
	}
	if err := b.Encode(p.r.encoder); err != nil {
		return fmt.Errorf("encoding for sink %s: %w", p.r.cfg.Sink.Component.Name, err)
	}
	return nil
}

// hide marks all records of b outside the range s as dropped, so that the processors process only
// s. It returns the earlier states of all records.
func hide(b *stream.Batch, s recordRange) []stream.State {
	b.Parsed() // its raw bytes contain more than the records of s
	states := make([]stream.State, len(b.Records))
	for i := range b.Records {
		states[i] = b.Records[i].State
		if i < s.from || i >= s.to {
			b.Records[i].State = stream.Dropped
		}
	}
	return states
}

// show gives the records outside the range s the states that they had before hide. The processors
// may have added records to s, so the records after s may have moved.
func show(b *stream.Batch, s recordRange, states []stream.State) {
	added := len(b.Records) - len(states)
	for i, state := range states {
		switch {
		case i < s.from:
			b.Records[i].State = state
		case i >= s.to:
			b.Records[i+added].State = state
		}
	}
}

// recordDeath notes that a processor has died of the job j. It gives j to another processing
// goroutine, unless the batch must fail (see trial.died).
func (r *processors) recordDeath(j *job, died error, idle *processorRestarts) {
	j.batch.RollbackTo(j.saved)
	deadLetter, giveUp := j.died(j.batch)
	if giveUp {
		j.err = died
		close(j.done)
		return
	}
	if deadLetter {
		reason := fmt.Errorf("%d processors died of it, the last of this: %w", maxDeaths, died)
		s, _ := j.next()
		for i := s.from; i < s.to; i++ {
			if j.batch.Records[i].State == stream.Kept {
				j.batch.DeadLetter(i, reason)
			}
		}
		j.pop()
		idle.deaths.Store(0)
	}
	r.line.afterDeath <- j // never blocks: see jobsAtOnce
}
