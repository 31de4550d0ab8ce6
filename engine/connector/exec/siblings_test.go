package exec_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// siblings returns a batch in which the records at 1 and 2 were made from one source record.
func siblings(texts ...string) *stream.Batch {
	b := streamtest.Lines(texts...)
	b.Split()
	b.Records[2].Origin, b.Records[2].Sub = b.Records[1].Origin, 1
	return b
}

// TestSiblings checks that records made from one source record settle together. If one of them is
// sent again, the source record must not count as settled, even if the others were delivered.
func TestSiblings(t *testing.T) {
	for _, c := range []struct {
		answer              string
		done, rest, refused []string
	}{
		{`{"delivered":true,"retry":[2]}`, []string{"a", "d"}, []string{"b", "c"}, nil},
		{`{"delivered":true,"refused":[1]}`, []string{"a", "d"}, nil, []string{"b", "c"}},
		{`{"delivered":true,"refused":[1,3],"retry":[2]}`,
			[]string{"a"}, []string{"b", "c"}, []string{"d"}},
	} {
		b := siblings("a", "b", "c", "d")
		_, err, misuse := exec.ParseForTest([]byte(c.answer), b)
		s, ok := err.(*stream.Split)
		if !ok || misuse != nil {
			t.Fatalf("%s: %v, %v, want a split", c.answer, err, misuse)
		}
		if !slices.Equal(texts(s.Done), c.done) || !slices.Equal(texts(s.Rest), c.rest) ||
			!slices.Equal(texts(s.Refused), c.refused) {
			t.Errorf("%s: %q done, %q again, %q refused", c.answer, texts(s.Done), texts(s.Rest),
				texts(s.Refused))
		}
	}
	if _, err, _ := exec.ParseForTest([]byte(`{"delivered":true,"retry":[0,1,3]}`),
		siblings("a", "b", "c", "d")); err == nil || is[*stream.Split](err) {
		t.Errorf("all source records again: %v, want a plain retryable error", err)
	}
}

// TestStormSiblings checks that records made from one source record are sent again together if a
// bolt fails one of their tuples, or dies while it processes one.
func TestStormSiblings(t *testing.T) {
	_, o := storm(t)
	_, lanes := opened(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for word, died := range map[string]int{"fail!": 0, "exit!": 1} {
		_, err := deliverToNext(ctx, lanes[0], siblings("a", "b", word, "d"))
		s, ok := errors.AsType[*stream.Split](err)
		if !ok || s.Died != died {
			t.Fatalf("%s: %v, want a split with %d deaths", word, err, died)
		}
		if !slices.Contains(texts(s.Done), "a") || slices.Contains(texts(s.Done), "b") ||
			!slices.Equal(texts(s.Rest[:1]), []string{"b", word}) {
			t.Errorf("%s: %q done, %q again", word, texts(s.Done), texts(s.Rest))
		}
	}
	_, err := deliverToNext(ctx, lanes[0], siblings("a", "b", "exit!", "d").Pick([]int{1, 2}))
	if !is[*stream.Died](err) || is[*stream.Split](err) {
		t.Errorf("the only source record: %v, want its death", err)
	}
}
