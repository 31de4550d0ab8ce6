//penstock:pure

// Package trace writes what a flow machine was told and what it then did, and replays that bit for bit.
//
// A trace is JSON lines: a header with the machine's config, then one event a line with the commands that the machine
// answered (docs/formats/trace.md). The engine (`flow: {trace: FILE}`) and the simulator write it, `penstock sim flow
// --replay` reads it. The package decides nothing and keeps no file open.
package trace

import (
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/flow/control"
)

// Version of the format that is written.
const Version = 1

// line is an event with the commands that answered it. Zero values are left out.
type line struct {
	Now     time.Duration `json:"now"` // ns since the sender's start
	Kind    string        `json:"event"`
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
	Report  *report       `json:"report,omitempty"`
	Limits  *limits       `json:"limits,omitempty"`
	Do      []command     `json:"do,omitempty"`
}

type report struct {
	Epoch     uint32        `json:"epoch,omitempty"`
	Credit    uint64        `json:"credit,omitempty"`
	Taken     uint64        `json:"taken,omitempty"`
	QueueLen  int           `json:"queue_len,omitempty"`
	Slots     int           `json:"slots,omitempty"`
	QueueWait time.Duration `json:"queue_wait,omitempty"`
	Service   time.Duration `json:"service,omitempty"`
	Place     string        `json:"place,omitempty"`
}

type limits struct {
	InFlight int  `json:"in_flight,omitempty"`
	Ordered  bool `json:"ordered,omitempty"`
}

type command struct {
	Kind   string        `json:"do"`
	Why    string        `json:"why,omitempty"`
	Seq    uint64        `json:"seq,omitempty"`
	ID     uint64        `json:"id,omitempty"`
	Lane   int32         `json:"lane,omitempty"`
	Number uint32        `json:"number,omitempty"`
	Run    uint32        `json:"run,omitempty"`
	Place  uint32        `json:"place,omitempty"`
	Expect time.Duration `json:"expect,omitempty"`
}

// The words of the format, by the machine's numbers; 0 is none of them.
var (
	kinds    = []string{"", "offer", "answer", "tick", "lane_up", "lane_down", "saved", "cut", "piece", "buried"}
	outcomes = []string{
		"", "delivered", "throttled", "retryable", "timed_out", "rejected", "misconfigured", "split",
	}
	deeds   = []string{"", "start", "cancel", "settle", "bisect", "bury"}
	reasons = []string{"", "probe"}
)

func word(words []string, n int) string {
	if n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n) // one that was added later than these words
}

func number(words []string, w, what string) (uint8, error) {
	for i, x := range words {
		if x == w {
			return uint8(i), nil
		}
	}
	if n, err := strconv.ParseUint(w, 10, 8); err == nil {
		return uint8(n), nil
	}
	return 0, fmt.Errorf("%q is no %s", w, what)
}

func lineOf(e *control.Event, do []control.Command) line {
	l := line{
		Now: e.Now, Kind: word(kinds, int(e.Kind)), Outcome: word(outcomes, int(e.Outcome)), Lane: e.Lane, Seq: e.Seq, ID: e.ID,
		Parent: e.Parent, Pieces: e.Pieces, Cost: e.Cost, Bytes: e.Bytes, Keys: e.Keys, After: e.After,
	}
	if e.Report != (control.Report{}) {
		r := report(e.Report)
		l.Report = &r
	}
	if e.Limits != (control.Limits{}) {
		m := limits(e.Limits)
		l.Limits = &m
	}
	if len(do) > 0 {
		l.Do = make([]command, len(do))
		for i := range do {
			l.Do[i] = commandOf(&do[i])
		}
	}
	return l
}

func commandOf(c *control.Command) command {
	return command{
		Kind: word(deeds, int(c.Kind)), Why: word(reasons, int(c.Why)), Seq: c.Seq, ID: c.ID, Lane: c.Lane, Number: c.Number,
		Run: c.Run, Place: c.Place, Expect: c.Expect,
	}
}

func (l *line) event() (control.Event, error) {
	e := control.Event{
		Now: l.Now, Lane: l.Lane, Seq: l.Seq, ID: l.ID, Parent: l.Parent, Pieces: l.Pieces,
		Cost: l.Cost, Bytes: l.Bytes, Keys: l.Keys, After: l.After,
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
	if l.Report != nil {
		e.Report = control.Report(*l.Report)
	}
	if l.Limits != nil {
		e.Limits = control.Limits(*l.Limits)
	}
	return e, nil
}
