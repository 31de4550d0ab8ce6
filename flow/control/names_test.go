package control_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/flow/control"
)

// TestEnumsHaveNames checks that every value of every enum has a name of its own, and that the name
// of an invalid value contains its number.
func TestEnumsHaveNames(t *testing.T) {
	for _, c := range []struct {
		name string
		at   func(int) fmt.Stringer
		want []string
	}{
		{"Kind", func(i int) fmt.Stringer { return control.Kind(i) }, []string{"unknown (0)", "offer", "answer", "tick",
			"lane up", "lane down", "saved", "cut", "piece", "buried", "withdraw", "abort", "held", "unknown (13)"}},
		{"Outcome", func(i int) fmt.Stringer { return control.Outcome(i) }, []string{"none", "delivered", "throttled",
			"retryable", "timed out", "rejected", "misconfigured", "split", "unknown (8)"}},
		{"CommandKind", func(i int) fmt.Stringer {
			return control.CommandKind(i)
		}, []string{"unknown (0)", "start", "cancel",
			"settle", "bisect", "bury", "wait", "defer", "unknown (8)"}},
		{"Why", func(i int) fmt.Stringer {
			return control.Reason(i)
		}, []string{"turn", "probe", "twin", "deadly", "failing",
			"apart", "exhausted", "withdrawn", "unknown (8)"}},
	} {
		var got []string
		for i := range c.want {
			got = append(got, c.at(i).String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	// The last value of each enum: a new value without a name fails here.
	if got := fmt.Sprint(control.Misconfigured, " ", control.Held, " ", control.Defer, " ",
		control.Failing); got != "misconfigured held defer failing" {
		t.Error(got)
	}
}
