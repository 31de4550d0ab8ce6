//penstock:pure

// Package trace records the decisions of flow control and replays them exactly. The state machine
// control.Machine makes these decisions. A trace is a file of JSON lines. The first line has the
// configuration of the machine. Each further line has an event and the commands that the machine
// returned for it. A trace of the engine usually ends with a line that states the reason for its
// end. See docs/formats/trace.md.
//
// The simulator writes a trace with a [Writer]. The engine writes one with a [File] (`flow: {trace:
// FILE}`), which never delays delivery. `penstock sim flow --replay` and `penstock explain` read a
// trace with a [Player].
package trace

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/flow/control"
)

// Version is the version of the format that this package writes.
const Version = 1

// endKind is the kind of the line that marks the end of a trace. Traces of the simulator have none.
const endKind = "end"

// line is an event with the commands that it caused. Members with zero values are omitted.
type line struct {
	Now     time.Duration `json:"now"` // ns since the start of the sender
	Kind    string        `json:"event"`
	Name    string        `json:"name,omitempty"` // name of the lane, for lane_up
	Why     string        `json:"why,omitempty"`  // reason, for end
	Outcome string        `json:"outcome,omitempty"`
	Lane    int32         `json:"lane,omitempty"`
	Seq     uint64        `json:"seq,omitempty"`
	ID      uint64        `json:"id,omitempty"`
	Parent  uint64        `json:"parent,omitempty"`
	Pieces  uint32        `json:"pieces,omitempty"`
	Cost    float64       `json:"cost,omitempty"`
	Bytes   int64         `json:"bytes,omitempty"`
	Keys    []uint32      `json:"keys,omitempty"`
	After   time.Duration `json:"after,omitempty"`
	Died    bool          `json:"died,omitempty"`
	Report  *report       `json:"report,omitempty"`
	Limits  *limits       `json:"limits,omitempty"`
	History history       `json:"history,omitzero"`
	Do      []command     `json:"do,omitempty"`
}

type report struct {
	Epoch       uint32        `json:"epoch,omitempty"`
	Credit      uint64        `json:"credit,omitempty"`
	Taken       uint64        `json:"taken,omitempty"`
	Batches     bool          `json:"batches,omitempty"`
	QueueLen    int           `json:"queue_len,omitempty"`
	Slots       int           `json:"slots,omitempty"`
	QueueWait   time.Duration `json:"queue_wait,omitempty"`
	Service     time.Duration `json:"service,omitempty"`
	Cost        uint64        `json:"cost,omitempty"`
	Draining    bool          `json:"draining,omitempty"`
	ResumeToken string        `json:"place,omitempty"`
}

type limits struct {
	InFlight int  `json:"in_flight,omitempty"`
	Ordered  bool `json:"ordered,omitempty"`
	Standby  int  `json:"standby,omitempty"`
}

// history describes an item (a batch) that waits for a retry: the numbers of its past attempts and
// failures, and the state of its retry policy.
type history struct {
	Attempts uint32        `json:"attempts,omitempty"`
	Failures uint32        `json:"failures,omitempty"`
	Suspect  bool          `json:"suspect,omitempty"`
	Elapsed  time.Duration `json:"elapsed,omitempty"`
	Retry    retryState    `json:"retry"`
}

type retryState struct {
	N     uint32        `json:"n,omitempty"`
	Step  uint32        `json:"step,omitempty"`
	Prev  time.Duration `json:"prev,omitempty"`
	Slept time.Duration `json:"slept,omitempty"`
}

func historyOf(h *control.History) history {
	return history{h.Attempts, h.Failures, h.Suspect, h.Elapsed, retryState(h.Retry)}
}

func (h *history) of() control.History {
	return control.History{
		Attempts: h.Attempts, Failures: h.Failures, Suspect: h.Suspect, Elapsed: h.Elapsed,
		Retry: backoff.State(h.Retry),
	}
}

type command struct {
	Kind   string        `json:"do"`
	Why    string        `json:"why,omitempty"`
	Seq    uint64        `json:"seq,omitempty"`
	ID     uint64        `json:"id,omitempty"`
	Lane   int32         `json:"lane,omitempty"`
	Number uint32        `json:"number,omitempty"`
	Count  uint32        `json:"count,omitempty"`
	Run    uint32        `json:"run,omitempty"`
	Place  uint32        `json:"place,omitempty"`
	Expect time.Duration `json:"expect,omitempty"`

	History history `json:"history,omitzero"`
}

// Words of the format for the numeric values of package control. Index 0 is not used.
var (
	kinds = []string{
		"", "offer", "answer", "tick", "lane_up", "lane_down", "saved", "cut", "piece", "buried",
		"withdraw", "abort", "held",
	}
	outcomes = []string{
		"", "delivered", "throttled", "retryable", "timed_out", "rejected", "misconfigured",
		"split",
	}
	deeds   = []string{"", "start", "cancel", "settle", "bisect", "bury", "wait", "defer"}
	reasons = []string{"", "probe", "twin", "deadly", "failing", "apart", "exhausted", "withdrawn"}
)

func number(words []string, w, what string) (uint8, error) {
	if i := slices.Index(words, w); i >= 0 {
		return uint8(i), nil
	}
	if n, err := strconv.ParseUint(w, 10, 8); err == nil {
		return uint8(n), nil
	}
	return 0, fmt.Errorf("%q is no %s", w, what)
}

// commandsOf converts commands to their form in a line. It reuses the slice to.
func commandsOf(to []command, do []control.Command) []command {
	to = to[:0]
	for i := range do {
		c := &do[i]
		to = append(to, command{
			Kind: string(appendKind(nil, deeds, int(c.Kind))),
			Why:  string(appendKind(nil, reasons, int(c.Reason))),
			Seq:  c.Seq, ID: c.ID, Lane: c.Lane, Number: c.Number,
			Count: c.Count, Run: c.Run, Place: c.Index, Expect: c.Expect,
			History: historyOf(&c.History),
		})
	}
	return to
}

func (l *line) event() (control.Event, error) {
	e := control.Event{
		Now: l.Now, Lane: l.Lane, Seq: l.Seq, ID: l.ID, Parent: l.Parent, Pieces: l.Pieces,
		Cost: l.Cost, Bytes: l.Bytes, Keys: l.Keys, After: l.After, Died: l.Died,
		History: l.History.of(), Report: control.Report(orZero(l.Report)),
		Limits: control.Limits(orZero(l.Limits)),
	}
	kind, err := number(kinds, l.Kind, "event")
	if err != nil {
		return e, err
	}
	outcome, err := number(outcomes, l.Outcome, "outcome")
	if err != nil {
		return e, err
	}
	e.Kind, e.Outcome = control.Kind(kind), control.Outcome(outcome)
	return e, nil
}
