package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// value returns the value of the message for record i. In format raw, a record with a null
// field message becomes a tombstone.
func (t *tool) value(b *stream.Batch, i int) []byte {
	if t.o.Format == formatJSON {
		return ndjson.AppendRecord(nil, b, i)
	}
	if b.Records[i].Parsed && t.has {
		if f, ok := b.FieldNamed(i, t.message); ok {
			if f.Kind == stream.Null {
				return nil
			}
			return bytes.Clone(b.Value(*f))
		}
	}
	return append([]byte{}, b.Text(i)...)
}

// verdict classifies the outcome of one record.
type verdict uint8

// The verdicts, from best to worst.
const (
	accepted verdict = iota
	refused          // the brokers will never accept this record
	again            // send it again
	full             // send it again later
	misconfigured
)

// judge classifies the error of one record. byRecord is set if the record determines the topic.
func judge(err error, byRecord bool) verdict {
	_, bad := errors.AsType[*badRecordError](err)
	switch {
	case err == nil:
		return accepted
	case bad, isRefusal(err):
		return refused
	case byRecord && (isUnknownTopic(err) || errors.Is(err, kerr.InvalidTopicException)):
		return refused
	case isUnknownTopic(err), errors.Is(err, kerr.InvalidTopicException), isFatal(err),
		errors.Is(err, kerr.UnsupportedForMessageFormat), errors.Is(err, kerr.InvalidRequiredAcks):
		return misconfigured
	case errors.Is(err, kerr.ThrottlingQuotaExceeded), errors.Is(err, kgo.ErrMaxBuffered):
		return full
	}
	return again
}

// isRefusal reports whether err means that the brokers refuse the content of a batch of records.
func isRefusal(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) ||
		errors.Is(err, kerr.InvalidRecord) ||
		errors.Is(err, kerr.InvalidTimestamp) || errors.Is(err, kerr.PolicyViolation)
}

// settle derives the outcome of a batch from the outcomes of its kept records. For one bad record,
// a broker refuses all records of a partition's batch. So refused records are split in half and
// sent again, until a single one is refused.
func settle(b *stream.Batch, kept []int, fates []error, byRecord bool) error {
	var groups [misconfigured + 1][]int
	worst, reason := accepted, error(nil)
	reasons := make(map[string]error)
	for at := 0; at < len(kept); {
		end, v, err := at, accepted, error(nil)
		for ; end < len(kept) && sameOrigin(b, kept[at], kept[end]); end++ {
			if w := judge(fates[end], byRecord); w > v {
				v, err = w, fates[end]
			}
		}
		groups[v] = append(groups[v], kept[at:end]...)
		for k := at; v == refused && k < end; k++ {
			reasons[string(b.AppendRecordID(nil, kept[k]))] = err
		}
		if v > worst {
			worst, reason = v, err
		}
		at = end
	}
	if worst == accepted {
		return nil
	}
	reason = fmt.Errorf("kafka: %w", reason)
	if whole := worst; len(groups[whole]) == len(kept) && whole != refused {
		return outcomeOf(whole, reason)
	}
	split := &stream.Split{Err: reason}
	if len(groups[accepted]) > 0 {
		split.Done = append(split.Done, stream.Piece(b.Pick(groups[accepted])))
	}
	var rest []int
	for _, v := range []verdict{again, full, misconfigured} {
		rest = append(rest, groups[v]...)
	}
	if len(rest) > 0 {
		split.Rest = append(split.Rest, stream.Piece(b.Pick(slices.Sorted(slices.Values(rest)))))
	}
	judgeRefused(b, groups[refused], reasons, split)
	return split
}

// errAborted is the outcome of a record if its transaction was aborted because of another record.
var errAborted = errors.New("the transaction was aborted")

// settleAborted derives the outcome of a batch if its transaction was aborted because some
// of its records were not accepted. None of its records was delivered.
func settleAborted(b *stream.Batch, kept []int, fates []error, byRecord bool) error {
	worst, reason := again, error(nil)
	for _, err := range fates {
		if v := judge(err, byRecord); v > worst {
			worst, reason = v, err
		} else if reason == nil {
			reason = err
		}
	}
	for k := range fates {
		if fates[k] == nil {
			fates[k] = fmt.Errorf("%w: %v", errAborted, reason) // no %w: judge must see errAborted
		}
	}
	if worst != again {
		return outcomeOf(worst, fmt.Errorf("kafka: %w", reason))
	}
	return settle(b, kept, fates, byRecord)
}

// judgeRefused refuses a record that is the only candidate, and records that cannot be made into
// messages. It splits all other refused records into halves to send again.
func judgeRefused(b *stream.Batch, records []int, reasons map[string]error, split *stream.Split) {
	var certain, doubtful []int
	origins := 0
	for n, i := range records {
		err := reasons[string(b.AppendRecordID(nil, i))]
		if _, bad := errors.AsType[*badRecordError](err); err != nil && (bad || !isRefusal(err)) {
			certain = append(certain, i)
			continue
		}
		if n == 0 || !sameOrigin(b, records[n-1], i) {
			origins++
		}
		doubtful = append(doubtful, i)
	}
	if origins == 1 {
		certain, doubtful = slices.Sorted(slices.Values(append(certain, doubtful...))), nil
	}
	if len(certain) > 0 {
		split.Refused = append(split.Refused, stream.Piece(b.Pick(certain)))
		split.Refusals = []error{&stream.RefusedError{Reasons: reasons}}
	}
	if len(doubtful) == 0 {
		return
	}
	half := len(doubtful) / 2
	for half > 0 && sameOrigin(b, doubtful[half-1], doubtful[half]) {
		half--
	}
	if half == 0 {
		for half = 1; half < len(doubtful) && sameOrigin(b, doubtful[half-1], doubtful[half]); half++ {
		}
	}
	split.Rest = append(split.Rest, stream.Piece(b.Pick(doubtful[:half])), stream.Piece(b.Pick(doubtful[half:])))
}

func outcomeOf(v verdict, err error) error {
	switch v {
	case full:
		return &stream.Throttled{Err: err}
	case misconfigured:
		return &stream.Misconfigured{Err: err}
	}
	return err
}

func sameOrigin(b *stream.Batch, i, j int) bool {
	return b.Records[i].Span == b.Records[j].Span && b.Records[i].Origin == b.Records[j].Origin
}
