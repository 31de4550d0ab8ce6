package inorder

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestOrderRandomly(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	var o Order[int]
	for run := range uint32(200) {
		run += 1<<32 - 100 // over the wrap
		n := 1 + random.IntN(20)
		failAt := 1 + random.IntN(2*n) // arrivals before the run fails
		var out, failed []int
		refused := 0
		for k, place := range random.Perm(n) {
			if k == failAt {
				o.Fail(errors.New("broken"), func(v int) { failed = append(failed, v) })
			}
			if err := o.Arrive(run, uint32(place), place, func(v int) {
				out = append(out, v)
			}); err != nil {
				if k < failAt {
					t.Fatalf("run %d: place %d is refused before the failure: %v", run, place, err)
				}
				refused++
			} else if k >= failAt {
				t.Fatalf("run %d: place %d is taken after the failure", run, place)
			}
		}
		if len(out)+len(failed)+refused != n {
			t.Fatalf("run %d: %d out, %d failed, %d refused, want %d together", run, len(out),
				len(failed), refused, n)
		}
		for i, v := range out {
			if v != i {
				t.Fatalf("run %d: came out as %v, want 0, 1, 2, ...", run, out)
			}
		}
		if !slices.IsSorted(failed) {
			t.Fatalf("run %d: failed in the order %v", run, failed)
		}
	}
	if err := o.Arrive(5, 0, 0, nil); !errors.Is(err, errOldRun) {
		t.Errorf("an old run's arrival: %v, want %v", err, errOldRun)
	}
	run := o.run + 1
	for _, place := range []uint32{0, 5} {
		if err := o.Arrive(run, place, 0, func(int) {}); err != nil {
			t.Errorf("place %d: %v", place, err)
		}
		if err := o.Arrive(run, place, 0, nil); !errors.Is(err, errTwice) {
			t.Errorf("place %d a second time: %v, want %v", place, err, errTwice)
		}
	}
}
