//penstock:pure

package flowsim

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/penstock-io/penstock/engine/internal/lab/scenario"
	"github.com/penstock-io/penstock/flow/control"
)

// server is a simulated receiver.
type server struct {
	num   int32
	cfg   scenario.Worker
	rnd   *rand.Rand // random numbers for service times
	fate  *rand.Rand // random numbers for errors
	speed float64    // multiple of the nominal rate; 0 while the worker is paused
	queue fifo[waiting]
	busy  []*job
	waits float64 // cost of the batches in queue

	pausedBy int                 // number of active pauses
	rate     *scenario.Event     // the active event of this kind; likewise the next four fields
	hung     *scenario.Event     //
	fail     *scenario.Event     //
	throttle *scenario.Event     //
	credit   *scenario.Event     //
	epoch    uint32              //
	accepted fifo[time.Duration] // times of the batches accepted by the throttle in the last second
	pool     pool
}

type waiting struct {
	a  *attempt
	at time.Duration
}

// job is a batch that a worker is processing.
type job struct {
	a       *attempt
	slot    int // index in server.busy
	gen     uint32
	left    time.Duration // remaining service time at full speed
	since   time.Duration // when left was updated
	began   time.Duration
	waited  time.Duration
	service time.Duration
	done    float64 // work done so far, in cost
}

// draw returns a random service time as a multiple of the mean.
func draw(s scenario.Service, r *rand.Rand) float64 {
	switch s {
	case scenario.Deterministic:
		return 1
	case scenario.Hyper:
		if r.Float64() < hyperShare {
			return r.ExpFloat64() * hyperLong
		}
		return r.ExpFloat64() * hyperShort
	}
	return r.ExpFloat64()
}

const (
	hyperShare = 0.1
	hyperLong  = 5.05
	hyperShort = 0.55
)

// reach handles the arrival of an attempt at its worker.
func (x *sim) reach(v *server, a *attempt) {
	if x.link != nil {
		x.reachLink(a)
		return
	}
	switch {
	case v.hung != nil:
		a.lost = true
		return
	case v.fail != nil && (v.fail.Share >= 1 || v.fate.Float64() < v.fail.Share):
		x.reply(a, v.fail.After, cmp.Or(v.fail.Outcome, control.Retryable), 0)
		return
	case x.refusesBad(a, v.num):
		return
	case v.throttle != nil && !v.admits(x.events.Now()):
		x.reply(a, 0, control.Throttled, v.throttle.Hint)
		return
	}
	if x.shared != nil { // the worker only forwards to the shared server
		v = x.shared
	}
	v.queue.add(waiting{a, x.events.Now()})
	v.waits += a.cost
	x.serve(v)
}

// refusesBad reports whether an attempt has bad data that the worker refuses. If so, it replies to
// the attempt, or loses it if the worker does not respond to bad data.
func (x *sim) refusesBad(a *attempt, worker int32) bool {
	b := &x.s.Bad
	if b.Share == 0 || !b.At(worker) || !b.Hits(x.seed, a.seq) {
		return false
	}
	if a.lost = b.Hang; !a.lost {
		x.reply(a, b.After, control.Retryable, 0)
	}
	return true
}

// admits reports whether the throttle accepts another batch. In any second, it accepts at most
// Limit batches, or one if Limit is less than 1.
func (v *server) admits(now time.Duration) bool {
	for v.accepted.len() > 0 && *v.accepted.first() <= now-time.Second {
		v.accepted.take()
	}
	if float64(v.accepted.len()+1) > max(1, v.throttle.Limit) {
		return false
	}
	v.accepted.add(now)
	return true
}

// serve starts to process waiting batches while the worker has free slots. A slot processes one
// batch at a time.
func (x *sim) serve(v *server) {
	for v.speed > 0 && len(v.busy) < v.cfg.Slots && v.queue.len() > 0 {
		w := v.queue.take()
		v.waits -= w.a.cost
		if v.queue.len() == 0 {
			v.waits = 0
		}
		j := &job{a: w.a, slot: len(v.busy), since: x.events.Now(), began: x.events.Now(),
			waited: x.events.Now() - w.at}
		j.left = time.Duration(float64(v.cfg.Mean(w.a.cost)) * draw(x.s.Service, v.rnd))
		j.service = j.left
		v.busy = append(v.busy, j)
		x.await(v, j)
	}
}

// await schedules the end of a job at the present speed of its worker.
func (x *sim) await(v *server, j *job) {
	j.gen++
	if v.speed == 0 {
		return
	}
	d := j.left
	if v.speed != 1 {
		d = time.Duration(float64(d) / v.speed)
	}
	x.events.After(d, occurrence{kind: served, num: v.num, gen: j.gen, job: j})
}

// account adds the work done since the last call for this job.
func (x *sim) account(v *server, j *job) {
	if dt := x.events.Now() - j.since; dt > 0 && v.speed > 0 {
		work := dt.Seconds() * v.speed * v.cfg.Rate / float64(v.cfg.Slots)
		x.fig.work.spread(j.since, x.events.Now(), work)
		j.done += work
		j.left -= time.Duration(float64(dt) * v.speed)
		j.left = max(j.left, 0)
	}
	j.since = x.events.Now()
}

func (x *sim) accountAll(v *server) {
	for _, j := range v.busy {
		x.account(v, j)
	}
}

// setSpeed changes the speed of a worker. Running jobs continue at the new speed.
func (x *sim) setSpeed(v *server, speed float64) {
	if speed == v.speed {
		return
	}
	x.accountAll(v)
	v.speed = speed
	for _, j := range v.busy {
		x.await(v, j)
	}
	x.serve(v)
}

// served ends a job and sends its response.
func (x *sim) served(v *server, j *job) {
	x.account(v, j)
	v.leave(j)
	it := &x.senders[j.a.sender].items[j.a.seq-1]
	if it.served { // the batch was delivered before, so this repetition does not count
		x.fig.work.spread(j.began, x.events.Now(), -j.done)
		x.fig.duplicate(x.events.Now())
	}
	it.served = true
	j.a.report = x.report(v, j)
	x.reply(j.a, 0, control.Delivered, 0)
	x.serve(v)
}

func (v *server) leave(j *job) {
	last := v.busy[len(v.busy)-1]
	v.busy[j.slot] = last
	last.slot = j.slot
	v.busy[len(v.busy)-1] = nil
	v.busy = v.busy[:len(v.busy)-1]
}

// lose discards all batches at a worker. Their senders never get a response.
func (x *sim) lose(v *server) {
	for _, j := range v.busy {
		x.account(v, j)
		x.fig.work.spread(j.began, x.events.Now(), -j.done)
		j.a.lost = true
		j.gen++
	}
	for _, w := range v.queue.all() {
		w.a.lost = true
	}
	clear(v.busy)
	v.busy = v.busy[:0]
	v.queue.empty()
	v.waits = 0
}

// restart restarts worker v if e is an event of kind Restart for it. The worker loses all its
// batches. Its epoch, which the senders see in its reports, grows by 1.
func (x *sim) restart(v *server, e *scenario.Event) {
	if e.Kind == scenario.Restart && e.About(v.num) {
		v.epoch++
		x.lose(v)
	}
}

// change applies the active events and pauses of the scenario to a worker.
func (x *sim) change(v *server) {
	if v.fails() {
		x.failing--
	}
	v.rate, v.hung, v.fail, v.throttle, v.credit = nil, nil, nil, nil, nil
	paused := v.pausedBy > 0
	for i := range x.s.Events {
		e := &x.s.Events[i]
		if x.events.Now() < e.At || x.events.Now() >= e.Until(x.s.Duration) || !e.About(v.num) {
			continue
		}
		switch e.Kind {
		case scenario.Rate:
			v.rate = e
		case scenario.Hang:
			v.hung = e
		case scenario.Pause:
			paused = true
		case scenario.Fail:
			v.fail = e
		case scenario.Throttle:
			v.throttle = e
		case scenario.Credit:
			v.credit = e
		}
	}
	if v.hung != nil {
		x.lose(v)
	}
	if v.fails() {
		x.failing++
	}
	speed := 1.0
	switch {
	case paused:
		speed = 0
	case v.rate != nil && v.rate.Factor > 0:
		speed = v.rate.Factor
	case v.rate != nil:
		speed = v.rate.Limit / v.cfg.Rate
	}
	x.setSpeed(v, speed)
}

// reply sends the response to an attempt back over the network.
func (x *sim) reply(a *attempt, after time.Duration, out control.Outcome, hint time.Duration) {
	a.outcome, a.hint = out, hint
	x.events.After(after+x.oneWay(), occurrence{kind: answers, a: a})
}

// oneWay returns a random network delay for one direction.
func (x *sim) oneWay() time.Duration {
	d := x.s.RTT / 2
	if x.s.Jitter > 0 {
		d += time.Duration(x.net.ExpFloat64() * float64(x.s.Jitter) / 2)
	}
	return d
}

// fails reports whether v responds with errors at present, or does not respond.
func (v *server) fails() bool { return v.fail != nil || v.hung != nil }
