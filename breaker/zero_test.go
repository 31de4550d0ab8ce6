package breaker

import (
	"context"
	"fmt"
	"testing"
)

// TestZeroValues checks that the zero values panic with the name of the constructor.
func TestZeroValues(t *testing.T) {
	for _, c := range []struct {
		call func()
		want string
	}{
		{func() { _, _ = new(Breaker).Allow() }, "zero Breaker; make one with breaker.New"},
		{func() { _ = new(Breaker).Do(t.Context(), func(context.Context) error { return nil }) },
			"zero Breaker; make one with breaker.New"},
		{func() { new(Breaker).State() }, "zero Breaker; make one with breaker.New"},
		{func() { _ = new(Breaker).Budget().Allow(t.Context()) },
			"zero Breaker; make one with breaker.New"},
		{func() { _ = new(Budget).Allow(t.Context()) },
			"zero Budget; make one with Breaker.Budget"},
		{func() { new(Circuit).Allow(0) }, "zero Circuit; make one with breaker.NewCircuit"},
	} {
		if got := panicOf(c.call); got != "breaker: "+c.want {
			t.Errorf("panic %q, want %q", got, "breaker: "+c.want)
		}
	}
	Call{}.Done(nil) // does nothing
}

func panicOf(call func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	call()
	return ""
}
