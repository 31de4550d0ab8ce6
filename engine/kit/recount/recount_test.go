package recount_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/recount"
	"github.com/penstock-io/penstock/stream"
)

func TestCount(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := recount.New()
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		must(c.Expect(fmt.Appendf(nil, "id%d", i), fmt.Appendf(nil, "text %d", i/2)))
		if i != 500 {
			must(c.Found(fmt.Appendf(nil, "text %d", i/2)))
		}
	}
	must(c.Found([]byte("of others")))
	must(c.Found([]byte("text 3")))
	must(c.Expect([]byte("empty"), nil))
	var got []stream.AuditDifference
	must(c.Compare(func(d stream.AuditDifference) error {
		got = append(got, d)
		return nil
	}))
	slices.SortFunc(
		got,
		func(a, b stream.AuditDifference) int { return cmp.Compare(a.RecordID, b.RecordID) },
	)
	want := []stream.AuditDifference{
		{
			RecordID: "empty",
			Missing:  1,
		}, {RecordID: "id500", Missing: 1}, {RecordID: "id6", Missing: -1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("differences %v, want %v", got, want)
	}
	must(c.Close())
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}
