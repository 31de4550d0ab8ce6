package flow

import (
	"slices"
	"testing"
)

func TestKeyNumbersAreUsedAgain(t *testing.T) {
	var keys keyTable
	first := keys.intern(nil, []string{"a", "b", "a"})
	if !slices.Equal(first, []uint32{0, 1, 0}) {
		t.Fatalf("a, b, a are %v", first)
	}
	second := keys.intern(nil, []string{"b", "c"})
	keys.release(first)
	if got := keys.intern(nil, []string{"d", "b"}); !slices.Equal(got, []uint32{0, 1}) {
		t.Errorf("d, b are %v; want a's number, which nobody holds, and b's", got)
	}
	keys.release(second)
	if len(keys.numbers) != 2 || len(keys.uses) != 3 {
		t.Errorf("%d keys and %d numbers; want b and d of 3", len(keys.numbers), len(keys.uses))
	}
}
