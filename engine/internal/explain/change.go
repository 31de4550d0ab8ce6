//penstock:pure

package explain

import (
	"fmt"

	"github.com/penstock-io/penstock/engine/internal/table"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

// Changes returns advice about the gate of w (the limit that holds it back): the events, and the
// changes to the config or to the worker, that affect how much data w gets. The most direct one
// comes first.
func (r *Route) Changes(w *Worker) []string {
	switch w.Gate {
	case "window":
		return r.windowChanges(w)
	case "breaker":
		return r.breakerChanges(w)
	}
	if changes := gateChanges[w.Gate]; changes != nil {
		return changes
	}
	if means := control.GateMeans(w.Gate); means != "" {
		return []string{"this condition ends: " + means}
	}
	return []string{"more data, or a faster source; this worker does not limit the route"}
}

// gateChanges has the advice about a gate that is the same for all workers.
var gateChanges = map[string][]string{
	"credit": {
		"the receiver advertises more when fewer batches wait in it: give it more slots, or a " +
			"faster service",
		"it is sent at most twice its own estimate, regardless of its advertisement",
	},
	"rate": {
		"without further 429 responses the rate grows back to just below the refused rate, and " +
			"after a minute slowly beyond it",
		"a higher limit at the receiver; a Retry-After in its 429 responses makes the wait exact",
	},
	"quota":       {"a larger `limit` or `worker_limit`"},
	"bytes":       {"a larger `limit` or `worker_limit`"},
	"concurrency": {"a larger `limit` or `worker_limit`"},
	"limit": {"more workers: connections of a SQL sink, children of an exec sink (`workers:`), " +
		"endpoints of an http sink"},
	"standby": {"all workers of the sinks before it fail, so that their breakers open"},
	"throttle": {
		"the pause passes (Retry-After, or a time that doubles with each refusal); the window " +
			"keeps its size",
		"a receiver with more capacity; meanwhile the other workers take its share",
	},
	"replay": {
		"the oldest batches are delivered, or the checkpoint is written: a hanging worker delays " +
			"both until its batch is overdue",
		"a larger `checkpoint.replay`: a kill would repeat more",
	},
	"order": {
		"the in-flight batches complete",
		"`flow.order: none`, if the order of delivery does not matter; some sinks, such as file, " +
			"keep the order nevertheless",
	},
	"waiting": {
		"workers accept a batch that they refuse now, or it becomes a dead letter: `penstock " +
			"status` has their responses",
		"larger limits in `retry.waiting`, and larger `memory` and `checkpoint.replay`",
	},
	"budget": {
		"deliveries: each allows a share of a redelivery (`flow.redeliver`), and so does time " +
			"(`flow.redeliver_rate`)",
		"fewer failures of workers: the log and `penstock status` have their responses",
	},
	"faster": {
		"a longer queue: if the faster workers need longer to finish it than this worker needs " +
			"for one batch, this one gets a batch",
		"a worker that is as fast as the others, or more workers of their speed",
	},
	"park": {
		"parked deliveries end, or an operator cancels some (`penstock parked list`)",
		"a larger `parked.bytes`, or a shorter `parked.history`",
	},
	"memory": {"a larger `memory`, or smaller batches (`batch.bytes`): more batches fit"},
}

func (r *Route) windowChanges(w *Worker) []string {
	if w.State == "PROBING" {
		return []string{"the measurement ends after a few responses, and the window returns to " +
			"its former size"}
	}
	shrink := "it shrinks by one per round when more batches queue there, and by up to half " +
		"when an attempt fails or is overdue"
	room := fmt.Sprintf("a round is about %s responses; a faster worker, or more workers behind "+
		"it, gives it room", table.Number(max(1, w.Window)))
	if r.grown(w) {
		return []string{"it is at its maximum: raise `flow.max`"}
	}
	switch a := r.Window.(type) {
	case nil:
		return []string{"it grows while few batches queue at the worker and the window is full, " +
			"and shrinks when more queue there", room}
	case window.Fixed:
		return []string{"nothing: a fixed window never changes. `flow.size` sets it, and " +
			"`flow.window: queue` makes it adapt"}
	case window.Linear:
		grow := "it grows by one per round while fewer batches queue at the worker than the " +
			"lower figure, if the window is full"
		if a.Threshold > 0 {
			grow = fmt.Sprintf("it grows by one per round while the mean round trip is at most "+
				"%v, if the window is full", a.Threshold)
		}
		if a.Step == window.PerAck {
			room = "a round is a single response (`flow.step: per_ack`)"
		}
		return []string{grow, "above that it shrinks by one per round, and at once by one for " +
			"each batch that is overdue or fails", room}
	case window.AIMD:
		shrink = "it shrinks by a fifth, once per round, when more batches queue there or an " +
			"attempt fails: other senders share the receiver"
	case window.Credit:
		return []string{
			"the sender's own estimate is the limit: a worker is sent at most twice " +
				"as much, regardless of its advertisement",
			"the estimate grows while responses are in time", room,
		}
	case window.Rate:
		return []string{"it follows the highest delivery rate of the last rounds and the round " +
			"trip of an idle worker: a faster worker raises it"}
	}
	return []string{
		"it grows by one per round while fewer batches queue at the worker than the lower " +
			"figure, if the window is full", shrink, room,
	}
}

// grown reports whether the window of w, the limit on its in-flight batches, has reached its
// maximum.
func (r *Route) grown(w *Worker) bool {
	a, bounded := r.Window.(window.Bounded)
	if !bounded {
		return false
	}
	top := a.Most()
	const byDefault = 1000 // default maximum of every algorithm
	if top == 0 {
		top = byDefault
	}
	return w.Window >= float64(top)
}

func (r *Route) breakerChanges(w *Worker) []string {
	try := "a delivered batch closes the breaker: the window then restarts at 1 and grows as at " +
		"the start"
	switch {
	case w.Misconfigured:
		return []string{"repair the reported fault: see the log and `penstock status`", try}
	case w.State != "OPEN" && w.State != "PROBING":
		return []string{"a delivered batch: then more than one is sent at a time", "if no worker " +
			"delivers anything, check the systems behind the workers: single batches probe them"}
	}
	others := "its batches go to other workers: none is lost"
	if len(r.Workers) == 1 {
		others = "its batches wait until it delivers again: none is lost"
	}
	return []string{
		try,
		"probes follow within seconds in the first minute of an outage, and within half a " +
			"minute later",
		others,
	}
}
