package verdict_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// judge reads the verdict from the text of the error.
func judge(err error) verdict.Verdict {
	if err == nil {
		return verdict.Accepted
	}
	return verdict.Verdict(slices.Index([]string{"", "refused", "again", "full", "wrong"},
		err.Error()))
}

// texts returns the texts of the kept records of pieces.
func texts(pieces []stream.Item) (out []string) {
	for _, p := range pieces {
		for _, i := range p.Value.AppendKept(nil) {
			out = append(out, string(p.Value.Text(i)))
		}
	}
	return out
}

// TestOutcomes checks the outcome of a batch of four records, a to d. The records b and c were made
// from one source record.
func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		errs [4]string
		want string // of a Split: accepted, retried and refused records, and the reasons
	}{
		{[4]string{}, "<nil>"},
		{[4]string{"again", "again", "full", "again"}, "*flow.Throttled"},
		{[4]string{"again", "wrong", "full", "again"}, "*flow.Misconfigured"},
		{[4]string{"again", "again", "again", "again"}, "*fmt.wrapError"},
		{[4]string{"", "", "again", ""}, "[a d] [b c] [] sink: again 0"},
		{[4]string{"refused", "", "", ""}, "[b c d] [] [a] sink: refused 1"},
		{[4]string{"", "refused", "", "full"}, "[a] [d] [b c] sink: full 2"},
		{[4]string{"refused", "refused", "again", "refused"}, "[] [b c] [a d] sink: again 2"},
		{[4]string{"refused", "refused", "", "refused"}, "[] [] [a b c d] sink: refused 4"},
	} {
		b := streamtest.Lines("a", "b", "c", "d")
		b.Split()
		b.Records[2].Origin, b.Records[2].Sub = b.Records[1].Origin, 1
		errs := make([]error, len(c.errs))
		for i, text := range c.errs {
			if text != "" {
				errs[i] = errors.New(text)
			}
		}
		err := verdict.Group(b, b.AppendKept(nil), errs, judge).Outcome("sink: ")
		got := fmt.Sprintf("%T", err)
		if split, ok := err.(*stream.Split); ok {
			reasons := 0
			if len(split.Refusals) > 0 {
				reasons = len(split.Refusals[0].(*stream.RefusedError).Reasons)
			}
			got = fmt.Sprint(texts(split.Done), texts(split.Rest), texts(split.Refused), split.Err,
				reasons)
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.errs, got, c.want)
		}
	}
}
