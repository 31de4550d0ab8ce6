//penstock:pure

// Package explain describes in words why a worker gets its present amount of data. It describes the
// state of the worker, the gate (the limit of flow control that holds the worker back), and changes
// that would help.
//
// The input is a [Route] with its [Worker]s at one moment. It comes from a trace ([FromTrace]) or
// from a running process ([FromStatus]). The command `penstock explain` prints the descriptions.
package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/internal/table"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
	"github.com/penstock-io/penstock/stream"
)

// Route is the state of a route's flow control at one moment.
type Route struct {
	Name      string           // "pipeline/route"; "" if a trace does not contain it
	Window    window.Algorithm // nil if unknown
	Replay    int64            // checkpoint.replay in bytes; 0 if there is none or it is unknown
	Waiting   int64            // read, not in flight: batches of a trace, records of a process
	LastFault string           // the latest failure of a worker, in words; "" none, or not known
	Workers   []Worker
}

// Worker is the state of a worker in flow control at one moment. Opens, the time until a paused
// worker is used again, is known only if the state comes from a trace.
type Worker struct {
	status.Worker
	Opens float64 // for OPEN, THROTTLED: remaining time in seconds; 0 if unknown
}

// WorkerStatus returns the status of a worker with the given name and state in flow control.
func WorkerStatus(name string, l *control.LaneStatus) status.Worker {
	return status.Worker{
		Name: name, State: l.State.String(), Gate: l.Gate, Reason: l.Reason,
		Window: l.Window, InFlight: l.InFlight,
		RoundTrip: l.RoundTrip.Seconds(), Base: l.Base.Seconds(), Timeout: l.Timeout.Seconds(),
		Delivered: l.Delivered, Failed: l.Failed, TimedOut: l.TimedOut, Throttled: l.ThrottledN,
		Late: l.Late, Misconfigured: l.Fault == control.Misconfigured, Rate: l.Rate,
	}
}

// Gates are the names of all gates (limits that can hold a worker back): those of flow control and
// those of a route.
var Gates = append(control.Gates(), "memory", "park")

// stateWords describes the states of workers.
var stateWords = map[string]string{
	"UNKNOWN": "there are too few responses to judge it yet",
	"NORMAL":  "it responds in time",
	"SLOW":    "batches queue there: it responds later than an idle worker",
	"BUSY":    "an attempt was overdue or failed, so fewer batches are sent at once",
	"PROBING": "it is being measured: few batches are sent, to see whether it is back or how fast " +
		"it is when idle",
	"OPEN":      "it failed repeatedly and gets only probes",
	"THROTTLED": "it reported that it is full and asked for a pause",
}

// StateWords describes the state of the worker.
func (w *Worker) StateWords() string { return cmp.Or(stateWords[w.State], "unknown state") }

// GateWords describes the gate of w: the limit of flow control that holds it back.
func (r *Route) GateWords(w *Worker) string {
	batches := count(w.InFlight, "batch", "batches")
	switch w.Gate {
	case "window":
		if w.State == "PROBING" {
			return fmt.Sprintf("%s in flight, the limit during the measurement", batches)
		}
		if float64(w.InFlight) < math.Floor(w.Window) {
			return fmt.Sprintf("%s in flight, and the next one must wait although the window is "+
				"%s: they are large, the worker refused more, or workers share a bottleneck",
				batches, table.Number(w.Window))
		}
		return fmt.Sprintf("%s in flight, the limit of the window of %s; the next batch is sent "+
			"after a response",
			batches, table.Number(w.Window))
	case "credit":
		return fmt.Sprintf("%s in flight, as many as the worker has advertised to accept",
			batches)
	case "rate":
		return fmt.Sprintf("since its 429 response, at most %s batches a second are sent",
			table.Number(w.Rate))
	case "limit":
		return fmt.Sprintf("%s in flight, the most that it can take at a time",
			batches)
	case "throttle":
		if w.Opens > 0 {
			return "it reported that it is full, and is paused" + opens(w)
		}
		return "it reported that it is full: it is paused, or gets one batch at a time"
	case "breaker":
		switch {
		case w.State == "PROBING":
			return "a probe is in flight; nothing else is sent before its response"
		case w.Misconfigured:
			return "it reports a wrong token, address or table; probes check whether that is " +
				"fixed" + opens(w)
		case w.State == "OPEN" || w.Opens > 0:
			return "it is paused" + opens(w) + ", then a probe follows"
		}
		return "it failed, or no worker delivers: one batch at a time is sent until one is " +
			"delivered"
	case "replay":
		bound := "the bytes of checkpoint.replay"
		if r.Replay > 0 {
			bound = stream.Size(r.Replay).String()
		}
		return bound + " in flight, or delivered and not yet saved; that is the most that a kill " +
			"may repeat"
	case "memory":
		return "it would accept more, but the batches of the route fill its memory"
	case "park":
		return "the store of parked deliveries is full; nothing is parked until deliveries end"
	case "none":
		return "it has room, and data is sent as soon as it is read"
	}
	return cmp.Or(control.GateMeans(w.Gate), "unknown gate")
}

// HeldWords describes the limits that slow the whole route down.
func (r *Route) HeldWords() string {
	by := map[string]int{}
	for i := range r.Workers {
		by[r.Workers[i].Gate]++
	}
	n := len(r.Workers)
	switch {
	case n == 0:
		return "there is no worker, so nothing can be sent"
	case by["replay"] > 0:
		return "the replay bound: nothing more is sent until a batch is delivered and saved"
	case by["memory"] > 0:
		return "memory: the workers would accept more, but the batches of the route fill its memory"
	case by["park"] > 0:
		return "parked deliveries: their store is full, and nothing is read until some end"
	case by["waiting"] > 0:
		return "retries: the maximum number of batches waits for another attempt, and nothing " +
			"is read until one of them is delivered or becomes a dead letter"
	case by["budget"] > 0:
		return "the redelivery budget: too many attempts failed recently, and the failed " +
			"batches wait for it"
	case by["order"] > 0 && by["none"] == 0:
		return "order: the next batches must wait for the batches in flight before them"
	case by["faster"] > 0:
		return fmt.Sprintf("speed: the next batches wait for faster workers, because they would "+
			"finish later at the %s",
			count(by["faster"], "worker with room", "workers with room"))
	case by["none"] > 0 && r.Waiting == 0:
		return fmt.Sprintf("the source: %d of %s room, and no batch waits", by["none"],
			verb(n, "worker has", "workers have"))
	case by["none"] > 0:
		return fmt.Sprintf("nothing for long: %d of %s room", by["none"],
			verb(n, "worker has", "workers have"))
	}
	return "the workers: " + workersHeld(by, n-by["standby"])
}

// workersHeld describes the gates of n workers, of which none has room. by has the number of
// workers at each gate.
func workersHeld(by map[string]int, n int) string {
	shut := by["breaker"] + by["throttle"]
	if shut == n {
		return "each of them fails or asked for a pause"
	}
	var parts []string
	if full := by["window"]; full > 0 {
		parts = append(parts, fmt.Sprintf("the windows of %d of %d are full", full, n))
	}
	for _, gate := range slices.Sorted(maps.Keys(by)) {
		if !slices.Contains([]string{"window", "breaker", "throttle", "standby"}, gate) {
			parts = append(parts, fmt.Sprintf("%d of %d reached the gate %s", by[gate], n, gate))
		}
	}
	if shut > 0 {
		parts = append(parts, verb(shut, "is", "are")+" paused")
	}
	last := len(parts) - 1
	if last == 0 {
		return parts[0]
	}
	return strings.Join(parts[:last], ", ") + ", and " + parts[last]
}

func opens(w *Worker) string {
	if w.Opens <= 0 {
		return ""
	}
	return fmt.Sprintf(" for %v more", round(time.Duration(w.Opens*float64(time.Second))))
}

func verb(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// count returns a number with its noun and the verb "is" or "are".
func count(n int, one, many string) string { return verb(n, one+" is", many+" are") }

// round rounds a duration to at most three digits.
func round(d time.Duration) time.Duration {
	for unit := time.Second; unit > 1; unit /= 10 {
		if d >= 100*unit {
			return d.Round(unit)
		}
	}
	return d
}
