//penstock:pure

package elasticsearch

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
)

// bulkAnswer is Elasticsearch's response to a bulk request. It has only the parts that filterPath
// lists.
type bulkAnswer struct {
	Errors *bool                 `json:"errors"`
	Items  []map[string]bulkItem `json:"items"`
}

type bulkItem struct {
	Status int             `json:"status"`
	Error  json.RawMessage `json:"error"`
}

// bulkErrors parses text, the response to a bulk request with n records. The first result has one
// element per record: nil if the record was accepted, otherwise its error. If the response has no
// items and reports no errors, all records were accepted, and the whole result is nil. If text is
// not a valid response for n records, bulkErrors returns an error, and all records must be sent
// again.
//
// Set created if the documents have the ids of their records and are never overwritten. Status 409
// (conflict) then means that the store already has the record, and counts as accepted. The string
// in where names the request in the errors, such as "POST http://host/_bulk".
func bulkErrors(text []byte, n int, created bool, where string) ([]error, error) {
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
	errs := make([]error, n)
	for i, item := range answer.Items {
		if len(item) != 1 {
			return nil, fmt.Errorf("item %d of the response has %d actions, want 1", i+1, len(item))
		}
		for _, it := range item {
			if s := it.Status; s >= 200 && s < 300 || s == 409 && created {
				continue // accepted, or already in the store
			}
			errs[i] = &itemError{location: where, status: it.Status, reason: it.reason()}
		}
	}
	return errs, nil
}

// judge classifies an error from the first result of bulkErrors, by its status:
//
//	no error                  accepted
//	429                       throttled
//	below 200, 408, from 500  retried
//	401, 403, 404, 405        misconfigured (no such index, no permission): never a dead letter
//	400, if refusesTarget     misconfigured (index or ingest pipeline refused)
//	all others                refused, for example because a field has the wrong type
func judge(err error) verdict.Verdict {
	if err == nil {
		return verdict.Accepted
	}
	e := err.(*itemError)
	switch s := e.status; {
	case s == 429:
		return verdict.Full
	case s == 408, s >= 500, s < 200:
		return verdict.Again
	case s == 401, s == 403, s == 404, s == 405, s == 400 && e.refusesTarget():
		return verdict.Misconfigured
	}
	return verdict.Refused
}

// refusesTarget reports whether the store has refused the index or the ingest pipeline, and not the
// document. Most errors of type illegal_argument_exception concern the document, so for this type
// refusesTarget also compares the text of the error.
func (e *itemError) refusesTarget() bool {
	kind, text, _ := strings.Cut(e.reason, ": ")
	switch kind {
	case "index_closed_exception",
		"validation_exception": // the cluster has as many shards as it may have
		return true
	case "illegal_argument_exception":
		return strings.HasPrefix(text, "pipeline with id [") &&
			strings.HasSuffix(text, "] does not exist") ||
			strings.HasPrefix(text, "no write index is defined for alias [") ||
			strings.HasPrefix(text, "only write ops with an op_type of create are allowed in "+
				"data streams")
	}
	return false
}

// reason returns the error of the item as text. This is its type and reason, or the plain text that
// old versions of the store send.
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

// maxBulkResponse is the maximum size of a bulk response in bytes. Even without filterPath, a
// response usually has only a few hundred bytes per record.
const maxBulkResponse = 32 << 20

// maxReason is the maximum length, in bytes, of the text of an item's error. A longer text is cut
// off.
const maxReason = 500

// itemError is the error of a record (an item of the bulk request) that the store has not accepted.
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

// Group implements stream.Grouped: dead letters with the same reason are counted together. The
// reason has only the type of the store's error. Its text is in the detail, because it may name the
// document.
func (e *itemError) Group() (reason, detail string) {
	reason = fmt.Sprintf("%s: an item of the bulk response has status %d", e.location, e.status)
	if kind, _, ok := strings.Cut(e.reason, ": "); ok && !strings.Contains(kind, " ") {
		reason += ": " + kind
	}
	return reason, e.reason
}

// bulkOutcome returns the outcome of a bulk request with the kept records of b (neither dropped nor
// dead-lettered). text is the response. Set created if the documents have the ids of their records.
// where names the request in errors.
func bulkOutcome(b *stream.Batch, text []byte, created bool, where string) error {
	kept := b.AppendKept(nil)
	errs, err := bulkErrors(text, len(kept), created, where)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	if errs == nil {
		return nil
	}
	return verdict.Group(b, kept, errs, judge).Outcome("")
}
