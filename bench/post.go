package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
)

// toHTTP returns a config that posts unchanged lines to URLs. Each URL is a worker. more is further
// YAML of the pipeline.
func toHTTP(urls []string, more string) string {
	return fromSpool + fmt.Sprintf("    sink: { http: { endpoints: [%s], body: raw } }\n%s",
		strings.Join(urls, ", "), more)
}

// received starts a receiver, runs a program that posts to it, and counts the records that the
// receiver has got.
func received(in load.Input, b receiver.Behaviour,
	post func(*receiver.Receiver) (proc.Run, error)) (measure, error) {
	b.Records = in.Records
	rec, err := receiver.Start(b)
	if err != nil {
		return measure{}, err
	}
	defer rec.Stop()
	r, err := post(rec)
	m := of(r, in)
	if err != nil {
		return m, err
	}
	return m, m.ask(rec)
}

// ask adds the numbers of lost and repeated records, as counted by the receiver, to the result.
func (m *measure) ask(rec *receiver.Receiver) error {
	s, err := rec.Stats()
	if err != nil {
		return err
	}
	m.see(s)
	return nil
}

// resent adds the figure "redelivered", the number of attempts after the first attempt of a batch.
// Unless penstock was killed, only these attempts can repeat records at the receiver.
func (m *measure) resent(s summary) { m.figures["redelivered"] = float64(s.Redelivered) }

func (m *measure) see(s receiver.Stats) {
	m.lost, m.repeated = s.Lost, s.Repeated+s.Unknown
	m.figures["in_flight"] = float64(s.MostInFlight)
	m.figures["requests"] = float64(s.Requests)
	if s.P99ms > 0 {
		m.figures["p50_ms"], m.figures["p99_ms"] = s.P50ms, s.P99ms
	}
}

// intoReceiver runs penstock with a receiver that has the given number of URLs.
func (e *env) intoReceiver(in load.Input, b receiver.Behaviour, endpoints int,
	more string) (measure, error) {
	var s summary
	m, err := received(in, b, func(rec *receiver.Receiver) (r proc.Run, err error) {
		j, err := e.job(in, toHTTP(rec.Endpoints(endpoints), more))
		if err != nil {
			return proc.Run{}, err
		}
		r, s, err = j.once()
		return r, err
	})
	if err == nil {
		m.resent(s)
	}
	return m, err
}

// posted measures the limit for HTTP: a program that only posts the input.
func (e *env) posted(in load.Input, connections int) (measure, error) {
	return received(in, receiver.Behaviour{}, func(rec *receiver.Receiver) (proc.Run, error) {
		return proc.Self(append([]string{"limit", "post", in.Path},
			rec.Endpoints(connections)...)...)
	})
}

// slowRecords is the number of records in each request to a slow receiver.
const slowRecords = 1000

// slowBatches sets the batch size to slowRecords.
const slowBatches = "    batch: { records: 1000, bytes: 16MiB }\n"

// slow is a receiver that takes some time for each request, and processes only a limited number of
// requests at once.
type slow struct {
	delay time.Duration
	slots int
}

func (s slow) behaviour() receiver.Behaviour {
	return receiver.Behaviour{Delay: s.delay, Slots: s.slots}
}

// records returns the number of records that the receiver can process in the given time.
func (s slow) records(during time.Duration) int64 {
	return slowRecords * int64(s.slots) * int64(during/s.delay)
}

// bound returns the limit with which penstock is compared: the shortest time in which the receiver
// can process the input.
func (s slow) bound(in load.Input) measure {
	requests := (in.Records + slowRecords - 1) / slowRecords
	m := of(proc.Run{Seconds: float64(requests) * s.delay.Seconds() / float64(s.slots)}, in)
	return m
}

// slowly runs penstock with a slow receiver and default flow control. A request has at most
// slowRecords records: batch.bytes is so large that it has no effect.
//
// The result has two ratios of a shortest possible time to the measured time. For of_requests, this
// is the shortest time in which the receiver can process the requests that penstock has sent. So
// this ratio measures flow control. For the ratio of the speeds, it is the shortest time for the
// same records in full requests. So this ratio measures the throughput for a user.
func (e *env) slowly(in load.Input, s slow) (measure, error) {
	m, err := e.intoReceiver(in, s.behaviour(), 1, slowBatches)
	if err == nil {
		m.figures["of_requests"] = m.figures["requests"] * s.delay.Seconds() / float64(
			s.slots) / m.Seconds
	}
	return m, err
}
