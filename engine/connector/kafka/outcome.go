package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
)

// judge classifies the error of sending one record. Set byRecord if each record determines its
// topic. An unknown topic is then a fault of the record, and otherwise of the configuration. An
// unknown topic id is no fault of the record: the topic was created again.
func judge(err error, byRecord bool) verdict.Verdict {
	_, bad := errors.AsType[*messages.RecordError](err)
	switch {
	case err == nil:
		return verdict.Accepted
	case bad, isRefusal(err):
		return verdict.Refused
	case errors.Is(err, kerr.UnknownTopicID):
		return verdict.Misconfigured
	case byRecord && (isUnknownTopic(err) || errors.Is(err, kerr.InvalidTopicException)):
		return verdict.Refused
	case isUnknownTopic(err), isFatal(err), isAny(err, kerr.InvalidTopicException,
		kerr.UnsupportedForMessageFormat, kerr.InvalidRequiredAcks, kerr.UnsupportedCompressionType):
		return verdict.Misconfigured
	case errors.Is(err, kerr.ThrottlingQuotaExceeded), errors.Is(err, kgo.ErrMaxBuffered):
		return verdict.Full
	}
	return verdict.Again
}

// isRefusal reports whether err means that the brokers refuse the content of a batch of records.
func isRefusal(err error) bool {
	return isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord,
		kerr.InvalidTimestamp, kerr.PolicyViolation)
}

// settle derives the outcome of a batch from errs, the errors of its kept records (neither dropped
// nor dead-lettered). A request has many records of a partition, and the broker refuses all of them
// if one is bad. Therefore settle splits refused records into halves that are sent again. This
// repeats until only the bad records are refused.
func settle(b *stream.Batch, kept []int, errs []error, byRecord bool) error {
	groups := verdict.Group(b, kept, errs, func(err error) verdict.Verdict {
		return judge(err, byRecord)
	})
	outcome := groups.Outcome("kafka: ")
	if split, ok := outcome.(*stream.Split); ok {
		bisectRefused(groups, split)
	}
	return outcome
}

// errAborted is the outcome of a record if its transaction was aborted because of another record.
var errAborted = errors.New("the transaction was aborted")

// settleAborted derives the outcome of a batch if its transaction was aborted because some of its
// records were not accepted. No record of the batch was delivered then. The whole batch counts as
// misconfigured if an operator must change something, and otherwise as throttled if the brokers
// throttle a record. In all other cases, refused records are split into halves that are sent again,
// as in settle.
func settleAborted(b *stream.Batch, kept []int, errs []error, byRecord bool) error {
	worst, reason := verdict.Again, error(nil)
	for _, err := range errs {
		if v := judge(err, byRecord); v > worst {
			worst, reason = v, err
		} else if reason == nil {
			reason = err
		}
	}
	for k := range errs {
		if errs[k] == nil {
			errs[k] = fmt.Errorf("%w: %v", errAborted, reason) // no %w: judge must see errAborted
		}
	}
	if worst != verdict.Again {
		return worst.Outcome(fmt.Errorf("kafka: %w", reason))
	}
	return settle(b, kept, errs, byRecord)
}

// bisectRefused moves refused records to split.Rest, in two halves that are sent again. Two kinds
// of records stay refused. The first kind is certainly bad, for example because no message can be
// made of the record. The second kind cannot be split, because all these records come from one
// source record.
func bisectRefused(g *verdict.Groups, split *stream.Split) {
	b := g.Batch
	var certain, doubtful []int
	for _, i := range g.Records[verdict.Refused] {
		err := g.Reasons[string(b.AppendRecordID(nil, i))]
		_, bad := errors.AsType[*messages.RecordError](err)
		if bad || !isRefusal(err) {
			certain = append(certain, i)
		} else {
			doubtful = append(doubtful, i)
		}
	}
	if len(doubtful) == 0 {
		return
	}
	whole := b.Pick(doubtful)
	defer whole.Release() // the halves hold it
	middle := whole.Middle()
	if middle == 0 {
		return
	}
	split.Rest = append(split.Rest, stream.Piece(whole.Cut(0, middle)),
		stream.Piece(whole.Cut(middle, len(whole.Records))))
	for _, undivided := range split.Refused {
		undivided.Value.Release()
	}
	if split.Refused = nil; len(certain) > 0 {
		split.Refused = append(split.Refused, stream.Piece(b.Pick(certain)))
	}
}
