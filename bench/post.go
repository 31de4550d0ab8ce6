package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
)

// toHTTP returns a config that posts raw bodies to endpoints. Each endpoint is a worker. more is
// YAML of the pipeline.
func toHTTP(urls []string, more string) string {
	return fromSpool + fmt.Sprintf("    sink: { http: { endpoints: [%s], body: raw } }\n%s",
		strings.Join(urls, ", "), more)
}

// received starts a receiver, runs the program that posts to it to its end, and counts the received
// records.
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

// ask adds the receiver's statistics.
func (m *measure) ask(rec *receiver.Receiver) error {
	s, err := rec.Stats()
	if err != nil {
		return err
	}
	m.see(s)
	return nil
}

// resent adds the number of batches that penstock sent again. Batches received twice without a kill
// are among them.
func (m *measure) resent(s summary) { m.figures["redelivered"] = float64(s.Redelivered) }

func (m *measure) see(s receiver.Stats) {
	m.lost, m.repeated = s.Lost, s.Repeated+s.Unknown
	m.figures["in_flight"] = float64(s.MostInFlight)
	m.figures["requests"] = float64(s.Requests)
	if s.P99ms > 0 {
		m.figures["p50_ms"], m.figures["p99_ms"] = s.P50ms, s.P99ms
	}
}

// intoReceiver runs penstock once against a receiver with the given number of endpoints.
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

// posted runs the bare poster.
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

// slow is a receiver with a service time and a number of concurrent requests.
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

// bound returns the shortest time in which the receiver can process the input.
func (s slow) bound(in load.Input) measure {
	requests := (in.Records + slowRecords - 1) / slowRecords
	m := of(proc.Run{Seconds: float64(requests) * s.delay.Seconds() / float64(s.slots)}, in)
	return m
}

// slowly runs penstock against a slow receiver, with slowRecords records in each request and
// untuned flow control. batch.bytes is so large that batch.records decides. The figure of_requests
// relates the time to the number of requests, which measures the flow control. The speed relates it
// to the records, which is the throughput that a user gets.
func (e *env) slowly(in load.Input, s slow) (measure, error) {
	m, err := e.intoReceiver(in, s.behaviour(), 1, slowBatches)
	if err == nil {
		m.figures["of_requests"] = m.figures["requests"] * s.delay.Seconds() / float64(
			s.slots) / m.Seconds
	}
	return m, err
}
