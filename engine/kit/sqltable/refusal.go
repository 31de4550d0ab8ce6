//penstock:pure

package sqltable

import (
	"errors"

	"github.com/penstock-io/penstock/stream"
)

// Refusal is a record that the table cannot store. Its reason may contain the name of a field, but
// no values.
type Refusal struct {
	Record int
	Reason string
	// NeedsExtra means that a JSON column could store the record, but the table has none.
	NeedsExtra bool
}

// Answer returns the outcome of Deliver if records are refused. refusals must not be empty. The
// outcome of a batch can have only one reason. Therefore only the records with the reason of the
// first refusal are refused now. The engine sends all others again, and the next attempt can refuse
// records for another reason. If a record is refused, all records of the same origin are refused.
func Answer(b *stream.Batch, refusals []Refusal) error {
	type origin struct {
		span uint32
		at   stream.Position
	}
	originOf := func(i int) origin { return origin{b.Records[i].Span, b.Records[i].Origin} }
	reason := refusals[0].Reason
	bad := make(map[origin]bool)
	for _, f := range refusals {
		if f.Reason == reason {
			bad[originOf(f.Record)] = true
		}
	}
	var refused, rest []int
	for i := range b.Records {
		switch {
		case b.Records[i].State != stream.Kept:
		case bad[originOf(i)]:
			refused = append(refused, i)
		default:
			rest = append(rest, i)
		}
	}
	answer := &stream.Split{Err: errors.New(reason)}
	if len(rest) == 0 {
		return &stream.Rejected{Err: answer.Err}
	}
	answer.Rest = append(answer.Rest, stream.Piece(b.Pick(rest)))
	answer.Refused = append(answer.Refused, stream.Piece(b.Pick(refused)))
	return answer
}
