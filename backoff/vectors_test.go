package backoff_test

import (
	"testing"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/internal/vectors"
)

func at(n int) backoff.State { return backoff.State{N: uint32(n)} }

func TestVectors(t *testing.T) {
	check := func(policy func(t *testing.T, p vectors.Object) backoff.Policy) func(*testing.T,
		vectors.Case) {
		return func(t *testing.T, c vectors.Case) {
			vectors.Check(t, c, vectors.Policy(policy(t, c.Params), at))
		}
	}
	vectors.Run(t, vectors.Backoff, map[string]func(*testing.T, vectors.Case){
		"fibonacci": check(func(t *testing.T, p vectors.Object) backoff.Policy {
			return backoff.Fibonacci(p.Duration(t, "unit_ns"), p.Duration(t, "max_ns"))
		}),
		"exponential": check(func(t *testing.T, p vectors.Object) backoff.Policy {
			return backoff.Exponential(p.Duration(t, "base_ns"), p.Float(t, "factor"),
				p.Duration(t, "max_ns"))
		}),
		"table": check(func(t *testing.T, p vectors.Object) backoff.Policy {
			return backoff.Table(p.Durations(t, "delays_ns")...)
		}),
		"slotted": check(func(t *testing.T, p vectors.Object) backoff.Policy {
			return backoff.Slotted(p.Duration(t, "slot_ns"), p.Int(t, "max_exponent"),
				p.Int(t, "attempts"))
		}),
	})
}
