package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/stream"
)

// The headers of a message that contains a dead letter, in the configured topic for dead letters.
const (
	headerID        = "penstock.id"        // of the record
	headerRoute     = "penstock.route"     // PIPELINE/ROUTE
	headerPartition = "penstock.partition" // TOPIC/NUMBER of the source
	headerOffset    = "penstock.offset"    // of the record in that partition
	headerReason    = "penstock.reason"
	headerDetail    = "penstock.detail"        // omitted if there is no detail
	headerOmitted   = "penstock.omitted_bytes" // length of the omitted value
)

// StoresDeadLetters implements [stream.DeadLetterSink]: it reports whether a topic for dead letters
// is configured.
func (s *transactionalSink) StoresDeadLetters() bool { return s.o.DeadLetterTopic != "" }

// StoreDead implements [stream.DeadLetterSink]: it writes the dead-lettered records of b to the
// topic for dead letters, and stores the progress for the spans of b.
func (s *transactionalSink) StoreDead(ctx context.Context, b *stream.Batch) error {
	_, err := s.store(ctx, b, nil)
	return err
}

// deadLetters returns the dead-lettered records of b as messages. If omit is set, the values of the
// messages are empty.
func (s *transactionalSink) deadLetters(b *stream.Batch, omit bool) (out []*kgo.Record) {
	if !s.StoresDeadLetters() || b.Untouched() {
		return nil
	}
	for i := range b.Records {
		rec := &b.Records[i]
		if rec.State != stream.Dead {
			continue
		}
		reason, detail := fmt.Sprint(b.Reason(i)), ""
		if g, ok := errors.AsType[stream.Grouped](b.Reason(i)); ok {
			reason, detail = g.Group()
		}
		r := &kgo.Record{Topic: s.o.DeadLetterTopic, Value: bytes.Clone(b.Text(i))}
		add := func(name, value string) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		add(headerID, string(b.AppendRecordID(nil, i)))
		add(headerRoute, s.route)
		add(headerPartition, b.Spans[rec.Span].Part.Name)
		add(headerOffset, strconv.FormatInt(rec.Origin.Num-1, 10))
		add(headerReason, stream.MaskURLs(reason))
		if detail != "" {
			add(headerDetail, stream.MaskURLs(detail))
		}
		if omit {
			add(headerOmitted, strconv.Itoa(len(r.Value)))
			r.Value = []byte{}
		}
		out = append(out, r)
	}
	return out
}

// store writes three things in one transaction: the given messages, the dead letters of b, and the
// progress for the spans of b. It returns the job, which has the result of each message.
//
// If the brokers refuse the content of dead letters, store tries again with dead letters that have
// empty values. The values are still in the dead-letter files. If the brokers do not accept some of
// the given messages, the job's fates have errors and the returned error is nil.
func (s *transactionalSink) store(ctx context.Context, b *stream.Batch,
	messages []*kgo.Record) (*job, error) {
	for _, omit := range []bool{false, true} {
		letters := s.deadLetters(b, omit)
		j := newJob(b.Spans)
		j.add(messages...)
		j.add(letters...)
		if err := s.do(ctx, j); err != nil {
			return j, err
		}
		own, err := firstError(j.fates[:len(messages)]), firstError(j.fates[len(messages):])
		switch {
		case own == nil && err == nil:
			s.host.Count("dead_letters_sent", int64(len(letters)))
			return j, nil
		case isRefusal(err) && !omit:
		case own != nil:
			return j, nil
		default:
			err = fmt.Errorf("kafka: topic of dead letters %q: %w", s.o.DeadLetterTopic, err)
			return j, judge(err, false).Outcome(err)
		}
	}
	panic("penstock: BUG: a job without values has no outcome")
}

// firstError returns the first non-nil error of a list.
func firstError(list []error) error {
	if i := slices.IndexFunc(list, func(err error) bool { return err != nil }); i >= 0 {
		return list[i]
	}
	return nil
}
