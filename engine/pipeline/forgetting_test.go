package pipeline

import (
	"slices"
	"testing"

	"github.com/penstock-io/penstock"
)

// A partition that is gone is forgotten when nothing of it is in work and nothing unsaved; the seal of one that was
// forgotten settles without a word.
func TestForget(t *testing.T) {
	k := newBooks(unknown)
	part := &penstock.Partition{ID: "p", Name: "p.log"}
	b, seal := lines(part, 0, 2, false), lines(part, 4, 0, true)
	for _, b := range []*penstock.Batch{b, seal} {
		if err := k.open(b); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		now  []string
	}{
		{"unsettled", func() {}, []string{"unknown"}},
		{"unsaved", func() { settle(t, k, b, false) }, []string{"unknown"}},
		{"saved", func() { k.take() }, []string{"p", "unknown"}},
		{"its seal settled later", func() { settle(t, k, seal, false) }, []string{"p", "unknown"}},
	} {
		step.do()
		now, later := k.forget([]string{"p", "unknown"})
		if !slices.Equal(now, step.now) || len(now)+len(later) != 2 {
			t.Errorf("%s: forgotten %v, later %v; want now %v", step.what, now, later, step.now)
		}
	}
}
