//penstock:pure

package exec

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
)

// This file encodes batches and parses answers in the protocol ndjson; see
// docs/formats/exec-ndjson.md.

// appendHead appends the beginning of the line that is sent to the child for batch b, up to the
// records. id identifies the batch in the child's answer. number is the number of the attempt.
func appendHead(dst []byte, id uint64, number int, b *stream.Batch) []byte {
	dst = append(dst, `{"id":`...)
	dst = strconv.AppendUint(dst, id, 10)
	dst = append(dst, `,"attempt":`...)
	dst = strconv.AppendInt(dst, int64(number), 10)
	dst = append(dst, `,"batch":"`...)
	dst = append(dst, b.ID()...)
	return append(dst, '"', ',')
}

// appendRecords appends the kept records of b, and the end of the line that is sent for b.
func appendRecords(dst []byte, b *stream.Batch) []byte {
	b.Split()
	dst = append(dst, `"records":[`...)
	first := true
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = ndjson.AppendRecord(dst, b, i)
	}
	return append(dst, "]}\n"...)
}

// answer is a child's answer to a batch.
type answer struct {
	ID        *uint64  `json:"id"` // nil if the answer is to the oldest unanswered batch
	Delivered bool     `json:"delivered"`
	Refused   []index  `json:"refused"` // if Delivered is set: records that will never be accepted
	Retry     []int    `json:"retry"`   // if Delivered is set: records to send again
	After     *float64 `json:"retry_after"`
	Rejected  bool     `json:"rejected"`
	Wrong     bool     `json:"misconfigured"`
	Err       string   `json:"error"`

	Epoch     uint32  `json:"epoch"`
	Credit    *uint64 `json:"credit"` // nil if the child reports no credit
	Taken     uint64  `json:"taken"`
	QueueLen  int     `json:"queue_len"`
	Slots     int     `json:"slots"`
	QueueWait float64 `json:"queue_wait"`
	Service   float64 `json:"service"`
}

// index identifies a refused record by its index in the batch, with an optional reason.
type index struct {
	Record int
	Reason string
}

// UnmarshalJSON parses 3 or {"record":3,"reason":"..."}.
func (x *index) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] != '{' {
		return json.Unmarshal(text, &x.Record)
	}
	var form struct {
		Record *int   `json:"record"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(text, &form); err != nil {
		return err
	}
	if form.Record == nil {
		return errors.New("a refused record has no number")
	}
	x.Record, x.Reason = *form.Record, form.Reason
	return nil
}

// parseAnswer parses one line of a child's output.
func parseAnswer(line []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		quoted := child.Quoted(line)
		return a, fmt.Errorf("its response %q is not valid in protocol ndjson: %w; write other "+
			"output to standard error", quoted, err)
	}
	if a.After != nil && (math.IsNaN(*a.After) || *a.After < 0) {
		return a, fmt.Errorf("its response has retry_after %v; want seconds, 0 or more", *a.After)
	}
	return a, nil
}

// report converts the load in a child's answer to a stream.Report. A credit (see
// docs/formats/exec-ndjson.md) is valid only together with an epoch and the number of records that
// the child has taken. If the answer lacks these two, report uses its parameters. epoch is the
// number of this child among all children that the sink has started. taken is the number of records
// that the child has answered.
func (a answer) report(epoch uint32, taken uint64) stream.Report {
	r := stream.Report{
		Epoch: a.Epoch, Taken: a.Taken, QueueLen: a.QueueLen, Slots: a.Slots,
		QueueWait: seconds(a.QueueWait), Service: seconds(a.Service),
	}
	if a.Credit == nil {
		return r
	}
	r.Credit = *a.Credit
	r.Epoch, r.Taken = cmp.Or(r.Epoch, epoch), cmp.Or(r.Taken, taken)
	return r
}

// longest is the maximum of retry_after and of the other times in an answer. A longer time is
// probably a mistake, and is reduced to longest.
const longest = 24 * time.Hour

func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, longest.Seconds()) * float64(time.Second))
}

// outcome returns the outcome of the attempt to deliver b. If the answer breaks the protocol,
// outcome returns the error misuse, and the caller must kill the child.
func (a answer) outcome(b *stream.Batch) (outcome, misuse error) {
	said := errors.New(cmp.Or(a.Err, "the child gave no reason"))
	if !a.Delivered {
		switch {
		case len(a.Refused)+len(a.Retry) > 0:
			return nil, errors.New(`its answer names records and says "delivered":false; ` +
				`with "delivered":true all others are delivered`)
		case a.Wrong:
			return &stream.Misconfigured{Err: said}, nil
		case a.Rejected:
			return &stream.Rejected{Err: said}, nil
		case a.After != nil:
			return &stream.Throttled{After: seconds(*a.After), Err: said}, nil
		}
		return said, nil
	}
	if key := a.contradiction(); key != "" {
		return nil, fmt.Errorf(`its answer has "delivered":true and %q, which contradict each `+
			`other; to name undelivered records, use "refused" or "retry"`, key)
	}
	if len(a.Refused)+len(a.Retry) == 0 {
		return nil, nil
	}
	kept := b.AppendKept(nil)
	errs := make([]error, len(kept))
	for _, x := range a.Refused {
		if x.Record < 0 || x.Record >= len(kept) || errs[x.Record] != nil {
			return nil, unknownRecord("refuses", x.Record, len(kept))
		}
		errs[x.Record] = &refusal{cmp.Or(x.Reason, said.Error())}
	}
	for _, n := range a.Retry {
		if n < 0 || n >= len(kept) || errs[n] != nil {
			return nil, unknownRecord("wants again", n, len(kept))
		}
		errs[n] = said
	}
	return verdict.Group(b, kept, errs, func(err error) verdict.Verdict {
		switch err.(type) {
		case nil:
			return verdict.Accepted
		case *refusal:
			return verdict.Refused
		}
		return verdict.Again
	}).Outcome(""), nil
}

// contradiction returns a key of the answer that contradicts delivered:true, or "" if there is
// none. If there are records to retry, retry_after is no contradiction: it can refer to them.
func (a answer) contradiction() string {
	switch {
	case a.Wrong:
		return "misconfigured"
	case a.Rejected:
		return "rejected"
	case a.After != nil && *a.After > 0 && len(a.Retry) == 0:
		return "retry_after"
	}
	return ""
}

// refusal is the reason why a child will never accept a record.
type refusal struct{ reason string }

// Error implements error.
func (r *refusal) Error() string { return r.reason }

func unknownRecord(what string, n, of int) error {
	return fmt.Errorf("its response %s record %d, which is not in the batch of %d or was "+
		"already listed", what, n, of)
}
