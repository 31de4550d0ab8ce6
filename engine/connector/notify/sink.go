// Package notify implements the sink `http` for configs with the option `url`. It sends each
// record, such as a notification or a webhook, to a URL of its own. At the times of the option
// `schedule`, it repeats the request until the receiver accepts it or the schedule ends.
//
// Before the first attempt, the sink parks a record: it stores the record on disk (kit/parked). A
// batch counts as delivered when its records are durable in the store. A dispatcher then sends the
// records that are due. It shares its attempts fairly between hosts: a slow host, or one that is
// down, hardly delays deliveries to other hosts. Package kit/egress checks URLs and addresses.
//
// # Terms
//
// A delivery is a parked record with its schedule and its history. A lane is the state of a host:
// its deliveries, limits and circuit breaker. The dispatcher visits a lane to start the attempts
// that are due.
//
// If several deliveries to a host fail in a row (no response, or a status of 500 or more), the host
// counts as down. It then gets only a few attempts, called probes, the last attempt of each
// delivery, and attempts that an operator has forced. The other planned times are skipped: they
// pass without an attempt.
//
// A receiver may accept a request by starting an operation. With the option `async`, the sink then
// polls: it asks at intervals whether the operation has ended.
package notify

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

// Component returns the sink's entry for the list of components. There are two sinks named http; a
// config with the option url selects this one.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "http",
		When:    "url",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// batches is the number of batches that the sink can store at the same time. The store can write
// several of them in one commit.
const batches = 16

// Sink parks records and delivers them. It implements stream.ParkingSink and stream.Encoder.
type Sink struct {
	o            Options
	host         stream.Host
	transport    nethttp.RoundTripper
	store        *parked.Store
	send         *sender
	storeLetters func(context.Context, []stream.DeadLetter) error
	synced       func() time.Time // time of the last synced checkpoint; nil without checkpoints
	once         bool
	refresh      time.Duration // interval between checks for changes of other processes
	makers       sync.Pool     // *evaluators
}

// counters lists the counters that are shown from startup on.
var counters = []string{
	"attempts",
	"attempts_accepted",
	"attempts_refused",
	"attempts_unanswered",
	"attempts_skipped",
	"attempts_aborted",
	"deliveries_parked",
	"deliveries_repeated",
	"deliveries_done",
	"deliveries_dead",
	"deliveries_exhausted",
	"hosts_went_down",
	"operations_started",
	"park_full",
	"polls",
}

// New returns a sink. It opens nothing.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.programs.url == nil { // used without a config: records may have any fields
		if _, err := o.Shape(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	s := &Sink{o: o, host: h, refresh: time.Second}
	s.makers.New = func() any { return newEvaluators(&s.o) }
	for _, name := range counters {
		h.Count(name, 0)
	}
	return s, nil
}

// Open implements stream.Sink.
func (s *Sink) Open(ctx context.Context, o stream.SinkOptions) error {
	if o.StateDir == nil {
		return errors.New("the sink needs a state directory for its parked deliveries")
	}
	dir, err := o.StateDir()
	if err != nil {
		return err
	}
	if s.transport == nil {
		if s.transport, err = newTransport(&s.o); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, parked.FileName)
	if s.store, err = parked.Open(
		ctx, parked.Options{Path: path, MaxBytes: int64(s.o.Parked.Bytes)},
	); err != nil {
		return err
	}
	if _, err := s.store.PruneHosts(ctx); err != nil {
		return err
	}
	s.storeLetters, s.once, s.synced = o.DeadLetter, o.Once, o.Synced
	s.send = newSender(s)
	s.host.Go("notify/dispatch", s.send.run)
	s.host.Go("notify/break-off", s.send.breakOff)
	s.host.Go("notify/record", s.send.record)
	for range s.send.workers.Load() {
		s.host.Go("notify/attempts", s.send.work)
	}
	o.Lanes([]stream.Lane{{Name: "parked", Worker: s, Limits: stream.Limits{InFlight: batches}}})
	return nil
}

// Close implements stream.Sink.
func (s *Sink) Close() error {
	if idle, ok := s.transport.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}

// Encodes implements stream.Encoder.
func (s *Sink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. It encodes nothing. It only splits the batch into Records,
// which is safe here, because no other goroutine uses the batch yet.
func (s *Sink) Encode(_ []byte, b *stream.Batch) ([]byte, error) {
	b.Split()
	return nil, nil
}

// Deliver implements stream.Worker. It parks the records, and refuses those from which no request
// can be made. If it refuses any, it parks none. In a finite run (--once), it returns when no
// delivery is due or in flight.
func (s *Sink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	kept := b.AppendKept(nil)
	if len(kept) == 0 {
		return stream.Report{}, nil
	}
	makers := s.makers.Get().(*evaluators)
	defer s.makers.Put(makers)
	makers.begin(b)
	rows, refused := make([]parked.Row, 0, len(kept)), map[int]error{}
	now := time.Now()
	for n, i := range kept {
		row, err := makers.row(b, i, now)
		if err != nil {
			refused[i] = &refusal{err}
			continue
		}
		if n > 0 && stream.SameOrigin(b.Records, kept[n-1], i) {
			row.Weight = 0
		}
		rows = append(rows, row)
	}
	if len(refused) > 0 {
		return stream.Report{}, split(b, kept, refused)
	}
	added, err := s.store.Add(context.WithoutCancel(ctx), rows)
	if errors.Is(err, parked.ErrFull) {
		s.host.Count("park_full", 1)
		return stream.Report{}, &stream.Throttled{After: time.Second, Err: err}
	}
	if err != nil {
		return stream.Report{}, err
	}
	s.host.Count("deliveries_parked", int64(len(rows)-added.Repeated))
	s.host.Count("deliveries_repeated", int64(added.Repeated))
	s.send.add(added.Hosts)
	if s.once {
		return stream.Report{}, s.send.awaitIdle(ctx)
	}
	return stream.Report{}, nil
}

// split returns the outcome of a batch with refused records. Records that were made from the same
// source record are refused together: if one of them is refused, all of them are. The engine
// delivers all other records again.
func split(b *stream.Batch, kept []int, refused map[int]error) error {
	out := &stream.Split{}
	reasons := map[string]error{}
	var bad, rest []int
	for at := 0; at < len(kept); {
		end, isBad := at, false
		for ; end < len(kept) && stream.SameOrigin(b.Records, kept[at], kept[end]); end++ {
			if err := refused[kept[end]]; err != nil {
				isBad = true
				reasons[string(b.AppendRecordID(nil, kept[end]))] = err
			}
		}
		if isBad {
			bad = append(bad, kept[at:end]...)
		} else {
			rest = append(rest, kept[at:end]...)
		}
		at = end
	}
	out.Refused = append(out.Refused, stream.Piece(b.Pick(bad)))
	if len(rest) > 0 {
		out.Rest = append(out.Rest, stream.Piece(b.Pick(rest)))
	}
	out.Err = &stream.RefusedError{Reasons: reasons}
	return out
}

// Parked implements stream.ParkingSink.
func (s *Sink) Parked() stream.ParkedCounts {
	return countsOf(s.send.store.LastTotals())
}

// deadLetter stores a delivery that gets no more attempts as a dead letter, with its history.
func (s *Sink) deadLetter(ctx context.Context, d *parked.Delivery, last parked.Entry) error {
	if s.storeLetters == nil {
		return nil
	}
	history, err := s.store.History(ctx, d.ID)
	if err != nil {
		return err
	}
	history = append(history, last)
	attempts := 0
	for _, e := range history {
		switch e.Event {
		case parked.Refuse.String(), parked.Stop.String(), parked.Start.String():
			attempts++
		}
	}
	if d.Polled() && last.Event == parked.Stop.String() {
		attempts-- // the last event was a poll
	}
	reason := s.reasonOf(d, last)
	return s.storeLetters(ctx, []stream.DeadLetter{
		{
			ID:        d.RecordID(),
			Partition: d.Partition,
			File:      d.File,
			Position:  d.Position,
			Record:    d.RecordText(),
			Reason:    reason,
			Detail:    last.Detail,
			Attempts:  attempts,
			Worker:    d.Host,
			History:   attemptsOf(history),
		},
	})
}

// reasonOf returns the reason of a dead letter. It does not quote the record or the response, so
// that dead letters can be counted by reason.
func (s *Sink) reasonOf(d *parked.Delivery, last parked.Entry) string {
	stopped := last.Event == parked.Stop.String()
	switch {
	case d.Polled() && stopped:
		return "the receiver's operation has failed"
	case d.Polled():
		return "the receiver's operation has not ended in time"
	case stopped && s.o.Async.isOn() && last.Status == nethttp.StatusAccepted:
		return "the receiver's operation cannot be polled"
	case stopped:
		return "the receiver wants no further attempt"
	}
	return fmt.Sprintf("not accepted in %d planned attempts", d.Schedule(s.o.schedule).Attempts())
}

func attemptsOf(history []parked.Entry) []stream.DeliveryAttempt {
	out := make([]stream.DeliveryAttempt, len(history))
	for i, e := range history {
		out[i] = stream.DeliveryAttempt{
			At:     e.At.UTC(),
			Event:  e.Event,
			Millis: e.Took.Milliseconds(),
			Status: e.Status,
			Detail: e.Detail,
			Body:   e.Body,
		}
	}
	return out
}
