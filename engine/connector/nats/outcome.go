package nats

import (
	"errors"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/verdict"
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

// judge returns the verdict on one record. err is the outcome of its message. If err is nil, the
// stream has stored the message.
func judge(err error) verdict.Verdict {
	if err == nil {
		return verdict.Accepted
	}
	if _, ok := errors.AsType[*messages.RecordError](err); ok {
		return verdict.Refused
	}
	if unknown, ok := errors.AsType[*unknownSubjectError](err); ok {
		if unknown.byRecord {
			return verdict.Refused
		}
		return verdict.Misconfigured
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return judgeAPI(api)
	}
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload),
		errors.Is(err, natsgo.ErrBadSubject),
		errors.Is(err, jetstream.ErrInvalidSubject):
		return verdict.Refused
	case errors.Is(err, natsgo.ErrPermissionViolation):
		return verdict.Misconfigured
	case errors.Is(err, jetstream.ErrTooManyStalledMsgs):
		return verdict.Full
	}
	return verdict.Again
}

func judgeAPI(err *jetstream.APIError) verdict.Verdict {
	switch err.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, codeHeaderTooLarge:
		return verdict.Refused
	case codeInsufficientResources, codeStoreFailed, codeRateLimited:
		return verdict.Full
	case codeStreamMismatch, codeStreamSealed, jetstream.JSErrCodeJetStreamNotEnabledForAccount:
		return verdict.Misconfigured
	}
	if err.Code == 429 {
		return verdict.Full
	}
	return verdict.Again
}
