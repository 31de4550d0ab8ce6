//penstock:pure

package explain

import (
	"fmt"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// Changes lists the changes that would affect the amount sent to w, the most immediate first.
func (r *Route) Changes(w *Worker) []string {
	switch w.Gate {
	case "window":
		return r.windowChanges(w)
	case "credit":
		return []string{
			"the receiver advertises more when less waits in it: more slots there, or a faster " +
				"service",
			"it is sent twice its own estimate at most, however much it advertises",
		}
	case "rate":
		return []string{
			"while it answers no 429 the rate grows back, to just below the refused rate; " +
				"after a minute it grows a little more",
			"a higher limit at the receiver; a Retry-After with its 429 makes the wait exact",
		}
	case "quota", "bytes", "concurrency":
		return []string{"a larger `limit` or `worker_limit`"}
	case "limit":
		return []string{"more workers: connections of a SQL sink, children of an exec sink " +
			"(`workers:`), endpoints of an http sink"}
	case "standby":
		return []string{"every worker of the sinks before it fails, so that their breakers open"}
	case "throttle":
		return []string{
			"the time that it asked for (Retry-After) passes; its window stays as it was",
			"a receiver with more room; meanwhile the others take its share",
		}
	case "breaker":
		return r.breakerChanges(w)
	case "replay":
		return []string{
			"the oldest batches are delivered, or the checkpoint is written: a worker that hangs " +
				"holds both up until its batch is overdue",
			"a larger `checkpoint.replay`: a kill would repeat more",
		}
	case "order":
		return []string{
			"what is in flight is answered",
			"`flow.order: none`, where the order of delivery does not matter",
		}
	case "waiting":
		return []string{
			"workers accept a batch that they refuse now, or it becomes a dead letter: `penstock " +
				"status` has their words",
			"larger bounds in `retry.waiting`, and `memory` and `checkpoint.replay` with them",
		}
	case "budget":
		return []string{
			"deliveries: each pays for a share of a redelivery (`flow.redeliver`), and so does " +
				"time (`flow.redeliver_rate`)",
			"workers that fail less: the log and `penstock status` have their words",
		}
	case "faster":
		return []string{
			"more waits: when the faster workers would need longer for it than this one does for " +
				"a batch, this one gets one",
			"a worker that is as fast as the others, or more of those",
		}
	case "park":
		return []string{
			"parked deliveries end, or an operator cancels some (`penstock parked list`)",
			"a larger `parked.bytes`, or a shorter `parked.history`",
		}
	case "memory":
		return []string{"a larger `memory`, or smaller batches (`batch.bytes`): more of them fit"}
	}
	return otherChanges(w.Gate)
}

// otherChanges lists the changes for the remaining gates, and for no gate.
func otherChanges(gate string) []string {
	if means := control.GateMeans(gate); means != "" {
		return []string{"this condition ends: " + means}
	}
	return []string{"more data, or a faster source; the worker is not what holds the route back"}
}

func (r *Route) windowChanges(w *Worker) []string {
	if w.State == "PROBING" {
		return []string{"the measurement ends after a few responses, and the window returns to " +
			"its former size"}
	}
	shrink := "it shrinks by one a round when more queue there, and by up to half when something " +
		"fails or is overdue"
	room := fmt.Sprintf("a round is about %s answers; a faster worker, or more workers behind "+
		"it, gives it room", figure(max(1, w.Window)))
	if r.grown(w) {
		return []string{"it has reached its greatest size: a larger `flow.max`"}
	}
	switch a := r.Window.(type) {
	case nil:
		return []string{"it grows while few batches queue at the worker and it is used to its " +
			"limit, and shrinks when more do", room}
	case window.Fixed:
		return []string{"nothing: a fixed window never changes. `flow.size` sets it, and " +
			"`flow.window: queue` makes it adapt"}
	case window.Linear:
		grow := "it grows by one a round while fewer batches queue at the worker than the lower " +
			"figure, if it is used to its limit"
		if a.Threshold > 0 {
			grow = fmt.Sprintf("it grows by one a round while the mean round trip is %v at most, "+
				"if it is used to its limit", a.Threshold)
		}
		if a.Step == window.PerAck {
			room = "a round is every single answer here (`flow.step: per_ack`)"
		}
		return []string{grow, "it shrinks by one a round beyond that, and by one at once for " +
			"each batch that is overdue or came back", room}
	case window.AIMD:
		shrink = "it shrinks by a fifth when more queue there or something fails, once a round: " +
			"others share the receiver"
	case window.Credit:
		return []string{
			"the sender's own estimate is the limit: a worker is sent at most twice " +
				"as much, regardless of its advertisement",
			"the estimate grows while answers come in time", room,
		}
	case window.Rate:
		return []string{"it follows the highest delivery rate of the last rounds and the drained " +
			"round trip: a faster worker raises it"}
	}
	return []string{
		"it grows by one a round while fewer batches queue at the worker than the lower figure, " +
			"if it is used to its limit", shrink, room,
	}
}

// Named returns the algorithm with the given name and default options, which is sufficient for
// descriptions. It returns nil if there is none.
func Named(name string) window.Algorithm {
	if e := window.Find(name); e != nil {
		return e.Algorithm
	}
	return nil
}

// grown reports whether the window has reached the configured maximum.
func (r *Route) grown(w *Worker) bool {
	a, bounded := r.Window.(window.Bounded)
	if !bounded {
		return false
	}
	top := a.Most()
	const byDefault = 1000 // of every algorithm
	if top == 0 {
		top = byDefault
	}
	return w.Window >= float64(top)
}

func (r *Route) breakerChanges(w *Worker) []string {
	try := "one batch that is delivered closes the breaker: its window then starts over at 1 and " +
		"grows as at the start"
	switch {
	case w.Misconfigured:
		return []string{"repair the reported fault: see the log and `penstock status`", try}
	case w.State == "BUSY":
		return []string{try, "if no worker delivers anything, check the systems behind the " +
			"workers: one batch at a time is attempted"}
	}
	return []string{
		try,
		"a try comes within seconds in the first minute of an outage, and within half a minute " +
			"later on",
		"its batches went to other workers: none is lost, none waits for it",
	}
}
