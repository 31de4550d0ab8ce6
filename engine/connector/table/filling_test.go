package table

import (
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
