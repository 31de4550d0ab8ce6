//penstock:pure

// Package verdict determines the outcome of a batch from the outcomes of its records. It is for
// sinks with a destination that answers for each record separately.
package verdict

import (
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// Verdict is the outcome of one record.
type Verdict uint8

// The verdicts, from best to worst.
const (
	Accepted      Verdict = iota
	Refused               // the destination will never accept the record
	Again                 // retry the record
	Full                  // retry the record, but not at once
	Misconfigured         // an operator must change something first
)

// Outcome returns the outcome of a batch if all its records have the verdict v, which must be Again
// or worse (Full or Misconfigured). It returns err, wrapped in a [stream.Throttled] for Full, and
// in a [stream.Misconfigured] for Misconfigured.
func (v Verdict) Outcome(err error) error {
	switch v {
	case Full:
		return &stream.Throttled{Err: err}
	case Misconfigured:
		return &stream.Misconfigured{Err: err}
	}
	return err
}

// Groups has the kept records of a batch, grouped by verdict.
type Groups struct {
	Batch   *stream.Batch
	Records [Misconfigured + 1][]int // indexes of the records, by verdict
	Reasons map[string]error         // errors of the refused records, by record id
	Worst   Verdict
	Reason  error // the first error with the verdict Worst
}

// Group groups records of b by their verdicts. kept has the indexes of the records. errs[k] is the
// error of the record kept[k], and judge returns the verdict for an error. All records made from
// one source record get the worst of their verdicts.
func Group(b *stream.Batch, kept []int, errs []error, judge func(error) Verdict) *Groups {
	g := &Groups{Batch: b, Reasons: make(map[string]error)}
	for at := 0; at < len(kept); {
		end, v, err := at, Accepted, error(nil)
		for ; end < len(kept) && stream.SameOrigin(b.Records, kept[at], kept[end]); end++ {
			if w := judge(errs[end]); w > v {
				v, err = w, errs[end]
			}
		}
		g.Records[v] = append(g.Records[v], kept[at:end]...)
		for k := at; v == Refused && k < end; k++ {
			g.Reasons[string(b.AppendRecordID(nil, kept[k]))] = err
		}
		if v > g.Worst {
			g.Worst, g.Reason = v, err
		}
		at = end
	}
	return g
}

// Outcome returns the outcome of the batch. It is nil if all records were accepted. If all are
// retried, it is the outcome of the worst verdict (see [Verdict.Outcome]). Otherwise it is a
// [stream.Split] into accepted, retried and refused records. prefix is put before the text of
// Reason.
func (g *Groups) Outcome(prefix string) error {
	if g.Worst == Accepted {
		return nil
	}
	reason := fmt.Errorf("%s%w", prefix, g.Reason)
	done, refused := g.Records[Accepted], g.Records[Refused]
	if len(done)+len(refused) == 0 {
		return g.Worst.Outcome(reason)
	}
	split := &stream.Split{Err: reason}
	if len(done) > 0 {
		split.Done = append(split.Done, stream.Piece(g.Batch.Pick(done)))
	}
	rest := slices.Concat(g.Records[Again], g.Records[Full], g.Records[Misconfigured])
	if slices.Sort(rest); len(rest) > 0 {
		split.Rest = append(split.Rest, stream.Piece(g.Batch.Pick(rest)))
	}
	if len(refused) > 0 {
		split.Refused = append(split.Refused, stream.Piece(g.Batch.Pick(refused)))
		split.Refusals = []error{&stream.RefusedError{Reasons: g.Reasons}}
	}
	return split
}

// Count updates the counters of a sink after a delivery with the outcome err: records_sent and
// bytes_sent by the size of the batch, or records_refused.
func Count(h stream.Host, err error, records int, bytes int64) {
	if err == nil {
		h.Count("records_sent", int64(records))
		h.Count("bytes_sent", bytes)
	} else if split, ok := err.(*stream.Split); ok {
		for _, piece := range split.Refused {
			h.Count("records_refused", int64(piece.Value.Kept()))
		}
	}
}
