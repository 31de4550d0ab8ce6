//penstock:pure

package window

// Queue is the window for receivers that do not report their capacity. It keeps a few batches
// queued at its worker. Without queued batches, the worker would idle at times. More than a few
// queued batches would only wait. The zero value is usable.
//
// The window starts at Initial and grows fast until the worker is full. Then it follows a target
// for the queue, of about 1.5 to 3 times sqrt(BDP), which is square-root staffing for workers that
// serve in parallel. If round trips hardly vary, the target is a quarter to three quarters of
// sqrt(BDP). BDP is the number of batches in flight that do not wait. If the queue is below the
// target, the window grows by one batch per round, or faster if almost nothing waits. If the queue
// is above the target, the window shrinks by one batch, or by up to a quarter if the queue is far
// above.
//
// The queue is estimated from the round trips as in TCP Vegas: of a window of W batches, q = W (1 -
// base/mean) wait. The base is the mean round trip of the drained worker, not the minimum. Example:
// with a window of 10, a base of 80 ms and a mean of 100 ms, 2 batches wait. The window counts
// cost: a batch of the worker's mean cost counts as one.
type Queue struct {
	Initial int // batches; 0 means 1
	Max     int // batches; 0 means 1000

	// Short keeps the queue just long enough that a worker with varying round trips seldom idles:
	// about the square root of the number of batches in the network. Every 5 to 20 s a probe of 64
	// batches or more drains the queue. The probes cost 1 to 3 percent of the goodput. They work
	// only if there are thousands of batches per minute. Package limit sets Short.
	Short bool
}

// Name returns "queue".
func (Queue) Name() string { return "queue" }

// Most returns Max.
func (q Queue) Most() int { return q.Max }

// Validate returns an error if q is invalid.
func (q Queue) Validate() error { return validRange("queue", q.Initial, q.Max) }

// New returns a window for one worker.
func (q Queue) New() Window {
	w := &queueWindow{newDelay(q.Initial, q.Max, queueCut)}
	w.base.short = q.Short
	return w
}

type queueWindow struct{ delay }

const queueCut = 0.5

func (q *queueWindow) OnSample(s Sample) {
	if !q.sample(&s) {
		return
	}
	v := q.endRound()
	switch {
	case q.startup.on:
		q.started(v, s.Now)
	case v.queue > 2*v.high+1:
		q.w = max(1, q.w-max(1, min((v.queue-v.high)/2, q.w/4)))
		q.since = s.Now
	case q.usesWeights():
		q.moveToTarget(v)
	case v.queue > v.high:
		q.w = max(1, q.w-1)
	case v.queue < v.low && v.limited:
		q.grow(v, s.Now)
	}
	v.after = q.w
	q.nextRound()
}

// AIMD is the window for receivers that are shared with unknown senders. It adds one batch per
// round while the worker is not full. If the worker is full or a batch times out, it removes a
// fifth of the window, at most once per round. A nack removes one batch, and all nacks of a round
// together remove at most a fifth. Only multiplicative decrease converges to a fair share (Chiu and
// Jain 1989). A worker is full under the same condition as in [Queue]. The zero value is usable.
type AIMD struct {
	Initial int // batches; 0 means 1
	Max     int // batches; 0 means 1000
}

// Name returns "aimd".
func (AIMD) Name() string { return "aimd" }

// Most returns Max.
func (a AIMD) Most() int { return a.Max }

// Validate returns an error if a is invalid.
func (a AIMD) Validate() error { return validRange("aimd", a.Initial, a.Max) }

// New returns a window for one worker.
func (a AIMD) New() Window {
	return &aimd{newDelay(a.Initial, a.Max, aimdCut)}
}

type aimd struct{ delay }

const aimdCut = 0.8

func (a *aimd) OnSample(s Sample) {
	if !a.sample(&s) {
		return
	}
	v := a.endRound()
	switch {
	case a.startup.on:
		a.started(v, s.Now)
	case v.queue > v.high:
		a.w = max(1, a.w*aimdCut)
		a.since = s.Now
	case v.queue < v.low && v.limited:
		a.grow(v, s.Now)
	}
	v.after = a.w
	a.nextRound()
}
