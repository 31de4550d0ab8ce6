package nats

import (
	"errors"
	"fmt"
	"slices"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/stream"
)

// verdict classifies the outcome of one record.
type verdict uint8

// The verdicts, from best to worst.
const (
	accepted verdict = iota
	refused          // the stream will never accept this record
	again            // send it again
	full             // send it again later
	misconfigured
)

// Error codes of the JetStream API without a name in the client library.
const (
	codeInsufficientResources jetstream.ErrorCode = 10023
	codeStreamMismatch        jetstream.ErrorCode = 10060
	codeStoreFailed           jetstream.ErrorCode = 10077 // the stream is full and does not discard old messages
	codeHeaderTooLarge        jetstream.ErrorCode = 10097
	codeStreamSealed          jetstream.ErrorCode = 10109
	codeRateLimited           jetstream.ErrorCode = 10167 // too many unstored messages
)

// judge classifies the error of one record.
func judge(err error) verdict {
	if err == nil {
		return accepted
	}
	if _, ok := errors.AsType[*badRecordError](err); ok {
		return refused
	}
	if unknown, ok := errors.AsType[*unknownSubjectError](err); ok {
		if unknown.byRecord {
			return refused
		}
		return misconfigured
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return judgeAPI(api)
	}
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload),
		errors.Is(err, natsgo.ErrBadSubject),
		errors.Is(err, jetstream.ErrInvalidSubject):
		return refused
	case errors.Is(err, natsgo.ErrPermissionViolation):
		return misconfigured
	case errors.Is(err, jetstream.ErrTooManyStalledMsgs):
		return full
	}
	return again
}

func judgeAPI(err *jetstream.APIError) verdict {
	switch err.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeaderTooLarge:
		return refused
	case codeInsufficientResources, codeStoreFailed, codeRateLimited:
		return full
	case codeStreamMismatch, codeStreamSealed, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return misconfigured
	}
	if err.Code == 429 {
		return full
	}
	return again
}

// settle derives the outcome of a batch from the outcomes of its kept records.
func settle(b *stream.Batch, kept []int, fates []error) error {
	var groups [misconfigured + 1][]int
	worst, reason := accepted, error(nil)
	reasons := make(map[string]error)
	for at := 0; at < len(kept); {
		end, v, err := at, accepted, error(nil)
		for ; end < len(kept) && sameOrigin(b, kept[at], kept[end]); end++ {
			if w := judge(fates[end]); w > v {
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
	reason = fmt.Errorf("nats: %w", reason)
	if len(groups[worst]) == len(kept) && worst != refused {
		return outcomeOf(worst, reason)
	}
	split := &stream.Split{Err: reason}
	if len(groups[accepted]) > 0 {
		split.Done = append(split.Done, stream.Piece(b.Pick(groups[accepted])))
	}
	rest := slices.Concat(groups[again], groups[full], groups[misconfigured])
	if slices.Sort(rest); len(rest) > 0 {
		split.Rest = append(split.Rest, stream.Piece(b.Pick(rest)))
	}
	if len(groups[refused]) > 0 {
		split.Refused = append(split.Refused, stream.Piece(b.Pick(groups[refused])))
		split.Refusals = []error{&stream.RefusedError{Reasons: reasons}}
	}
	return split
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
