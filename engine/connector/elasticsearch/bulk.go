//penstock:pure

package elasticsearch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
)

// itemResult is the outcome of one record in a bulk response.
type itemResult struct {
	outcome control.Outcome // Delivered, Throttled, Retryable, Rejected or Misconfigured
	status  int
	reason  string
}

// bulkAnswer is Elasticsearch's response to a bulk request, reduced by filterPath.
type bulkAnswer struct {
	Errors *bool                 `json:"errors"`
	Items  []map[string]bulkItem `json:"items"`
}

type bulkItem struct {
	Status int             `json:"status"`
	Error  json.RawMessage `json:"error"`
}

// bulkResults parses the results of n records. created means that the documents have their records'
// ids and are never overwritten, so a conflict is a repetition. It returns nil, nil if all records
// were accepted. An error means that the response is implausible; then everything is sent again.
func bulkResults(text []byte, n int, created bool) ([]itemResult, error) {
	var answer bulkAnswer
	if err := json.Unmarshal(text, &answer); err != nil || answer.Errors == nil {
		return nil, errors.New("the response is not a bulk response: it has no \"errors\"; " +
			"check the endpoint's path")
	}
	if len(answer.Items) == 0 && !*answer.Errors {
		return nil, nil
	}
	if len(answer.Items) != n {
		return nil, fmt.Errorf("the response has %d items for %d records", len(answer.Items), n)
	}
	fates := make([]itemResult, n)
	for i, item := range answer.Items {
		if len(item) != 1 {
			return nil, fmt.Errorf("item %d of the response has %d actions, want 1", i+1, len(item))
		}
		for _, it := range item {
			fates[i] = it.result(created)
		}
	}
	return fates, nil
}

// result classifies an item's status:
//
//	2xx                       delivered
//	409                       delivered if created: the store had it already
//	429                       throttled
//	408, 5xx                  to be sent again
//	401, 403, 404, 405        misconfigured (no such index, no right): never a dead letter
//	all else                  rejected: the document does not fit
func (it *bulkItem) result(created bool) itemResult {
	f := itemResult{status: it.Status, reason: it.reason()}
	switch s := it.Status; {
	case s >= 200 && s < 300, s == 409 && created:
		f.outcome = control.Delivered
	case s == 429:
		f.outcome = control.Throttled
	case s == 408, s >= 500, s < 200:
		f.outcome = control.Retryable
	case s == 401, s == 403, s == 404, s == 405:
		f.outcome = control.Misconfigured
	default:
		f.outcome = control.Rejected
	}
	return f
}

// reason returns the error as text: type and reason, or the plain text that old versions send.
func (it *bulkItem) reason() string {
	var detail struct{ Type, Reason string }
	var text string
	switch {
	case json.Unmarshal(it.Error, &detail) == nil && detail.Type != "":
		text = detail.Type + ": " + detail.Reason
	case json.Unmarshal(it.Error, &text) == nil:
	}
	if len(text) > maxReason {
		text = text[:maxReason] + "..."
	}
	return text
}

// maxBulkResponse bounds the bytes of a bulk response, which has a few hundred bytes per record.
const maxBulkResponse = 32 << 20

// maxReason bounds the bytes of an item's error that are kept.
const maxReason = 500

func (f *itemResult) err(where string) error {
	return &itemError{location: where, status: f.status, reason: f.reason}
}

// itemError is the error of a bulk item that was not accepted.
type itemError struct {
	location string
	status   int
	reason   string // type and text of the store's error, or the text alone; may be empty
}

// Error implements error. It includes the status and the store's error.
func (e *itemError) Error() string {
	if e.reason == "" {
		return fmt.Sprintf("%s: an item of the bulk response has status %d", e.location, e.status)
	}
	return fmt.Sprintf("%s: an item of the bulk response has status %d: "+
		"%q", e.location, e.status, e.reason)
}

// Group implements stream.Grouped. The text of the store's error is a detail, because it names the
// document.
func (e *itemError) Group() (reason, detail string) {
	reason = fmt.Sprintf("%s: an item of the bulk response has status %d", e.location, e.status)
	if kind, _, ok := strings.Cut(e.reason, ": "); ok && !strings.Contains(kind, " ") {
		reason += ": " + kind
	}
	return reason, e.reason
}

// rank orders outcomes from best to worst. Records made from one source record are settled together
// with the worst of their outcomes. Outcomes from toSend on are sent again.
func rank(o control.Outcome) int {
	switch o {
	case control.Delivered:
		return 0
	case control.Rejected:
		return 1
	case control.Throttled:
		return toSend + 1
	case control.Misconfigured:
		return toSend + 2
	}
	return toSend
}

const toSend = 2

// bulkOutcome returns the outcome of the response to a bulk with the kept records of b. See
// bulkResults for created.
func bulkOutcome(b *stream.Batch, text []byte, created bool, where string) error {
	fates, err := bulkResults(text, b.Kept(), created)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return outcomeOf(b, fates, where)
}

// outcomeOf derives the outcome of the attempt from the results of b's kept records, in order. The
// outcome is nil if all were accepted, and a single outcome if all share it. Otherwise it is a
// Split into the accepted, the retryable and the refused records, with a reason for each refused
// one.
func outcomeOf(b *stream.Batch, fates []itemResult, where string) error {
	if fates == nil {
		return nil
	}
	var done, rest []int
	var refused [][]int
	var refusals []error
	byReason := make(map[string]int)
	worst := itemResult{}
	kept := b.AppendKept(nil)
	for at := 0; at < len(kept); {
		end, f := at+1, fates[at]
		for ; end < len(kept) && sameOrigin(b, kept[at], kept[end]); end++ {
			if rank(fates[end].outcome) > rank(f.outcome) {
				f = fates[end]
			}
		}
		switch rank(f.outcome) {
		case 0:
			done = append(done, kept[at:end]...)
		case 1:
			err := f.err(where)
			n, ok := byReason[err.Error()]
			if !ok {
				n = len(refused)
				byReason[err.Error()] = n
				refused, refusals = append(refused, nil), append(refusals, err)
			}
			refused[n] = append(refused[n], kept[at:end]...)
		default:
			if len(rest) == 0 || rank(f.outcome) > rank(worst.outcome) {
				worst = f
			}
			rest = append(rest, kept[at:end]...)
		}
		at = end
	}
	if len(done) == len(kept) {
		return nil
	}
	if len(rest) == len(kept) {
		return worst.batchError(where)
	}
	return split(b, done, rest, refused, refusals, &worst, where)
}

// batchError returns the outcome of a batch without accepted and refused records.
func (f *itemResult) batchError(where string) error {
	switch err := f.err(where); f.outcome {
	case control.Throttled:
		return &stream.Throttled{Err: err}
	case control.Misconfigured:
		return &stream.Misconfigured{Err: err}
	default:
		return err
	}
}

func split(b *stream.Batch, done, rest []int, refused [][]int, refusals []error,
	worst *itemResult, where string) error {
	s := &stream.Split{Refusals: refusals}
	if len(done) > 0 {
		s.Done = append(s.Done, stream.Piece(b.Pick(done)))
	}
	if len(rest) > 0 {
		s.Rest = append(s.Rest, stream.Piece(b.Pick(rest)))
		s.Err = worst.err(where)
	} else {
		s.Err = refusals[0]
	}
	for _, records := range refused {
		s.Refused = append(s.Refused, stream.Piece(b.Pick(records)))
	}
	return s
}

func sameOrigin(b *stream.Batch, i, j int) bool {
	return b.Records[i].Span == b.Records[j].Span && b.Records[i].Origin == b.Records[j].Origin
}
