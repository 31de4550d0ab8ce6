package table

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// TestOrderAfterLateRow checks that the row after a skipped late row is compared with that row.
// Rows with the key of the late row are no duplicates of the last added row, which page would drop.
func TestOrderAfterLateRow(t *testing.T) {
	for _, c := range []struct {
		rows  []int64 // the row 20 is late
		want  string
		added int
	}{
		{rows: []int64{10, 20, 30}, added: 2},
		{rows: []int64{10, 20, 15}, added: 1, want: "returns its rows in another order"},
		{rows: []int64{20, 15}, want: "returns its rows in another order"},
		{rows: []int64{10, 20, 20}, added: 1, want: "have the same position"},
		{rows: []int64{10, 20, 30, 20}, added: 2, want: "returns its rows in another order"},
	} {
		var d numbers
		r, err := d.describe(t.Context(), subject{name: "t"})
		if err != nil {
			t.Fatal(err)
		}
		r.keys = newKeyset([]string{"id"}, []keyKind{keyInteger})
		late := map[string]bool{string(d.key(nil, r, 20)): true}
		var b stream.Batch
		maker := newRowMaker(r)
		maker.begin(&b)
		f := filling{maker: &maker, part: &partition{relation: r, late: &lateness{skip: late}},
			records: 9, bytes: math.MaxInt}
		for _, n := range c.rows {
			if !f.add(d.key(nil, r, n), func() { maker.value(numberValue, []byte("1")) }) {
				break
			}
		}
		if c.want == "" && f.err != nil || c.want != "" &&
			(f.err == nil || !strings.Contains(f.err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.rows, f.err, c.want)
		}
		if len(f.ends) != c.added || f.duplicate {
			t.Errorf("%v: %d rows were added, want %d; duplicate %v", c.rows, len(f.ends), c.added,
				f.duplicate)
		}
	}
}

// failing is a database in which query number `at` fails, before or after its rows were added.
type failing struct {
	numbers
	at    int
	after bool
}

func (d *failing) rows(_ context.Context, r *relation, q rowQuery, f *filling) error {
	d.at--
	if d.at == 0 && !d.after {
		return errOther
	}
	f.add([]byte(q.exact), func() { f.maker.value(numberValue, []byte("1")) })
	if d.at == 0 {
		return errOther
	}
	return nil
}

// TestFailureAmongLateRows lets the query of the third late row fail. The two rows before it must
// be in a span, since rows without a span would be delivered, but read again later.
func TestFailureAmongLateRows(t *testing.T) {
	for _, after := range []bool{false, true} {
		d := failing{at: 3, after: after}
		r, err := d.describe(t.Context(), subject{name: "t"})
		if err != nil {
			t.Fatal(err)
		}
		r.keys = newKeyset([]string{"id"}, []keyKind{keyInteger})
		l := lateness{top: 4}
		for n := range l.top {
			l.state.found = append(l.state.found, discovery{n + 1, string(d.key(nil, r, n))})
		}
		b := stream.NewBatch(stream.BatchLimits{})
		b.Spans = append(b.Spans, stream.Span{}) // of the rows that are not late
		maker := newRowMaker(r)
		maker.begin(b)
		f := filling{maker: &maker, records: 9, bytes: math.MaxInt}
		for _, want := range []int{2, 4} {
			err = l.fill(t.Context(), &d, &partition{relation: r, late: &l}, b, &f)
			last := b.Spans[len(b.Spans)-1]
			if len(b.Records) != want || int(last.Range.To.Num) != want {
				t.Errorf("%d records and spans %v, want %d records", len(b.Records), b.Spans, want)
			}
			if failed := errors.Is(err, errOther); failed != (want == 2) {
				t.Errorf("%d records: %v", want, err)
			}
			for i := range b.Records {
				if n := b.Records[i].Span; int(n) >= len(b.Spans) {
					t.Errorf("record %d has span %d of %d", i, n, len(b.Spans))
				}
			}
		}
	}
}
