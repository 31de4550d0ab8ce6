package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/bench/load"
)

// A job that is over before all kills is begun anew with twice the input, a few times; any other failure is what it is.
func TestLongEnough(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		lasts   int64 // bytes that are enough
		fails   error
		want    error
		runs    int
		records int64
	}{
		{1, nil, nil, 1, 10}, {2, nil, nil, 2, 20}, {8, nil, nil, 4, 80}, {9, nil, errOver, 4, 80}, {1, failed, failed, 1, 10},
	} {
		e := &env{inputs: make(map[string]load.Input)}
		for n := int64(1); n <= 8; n *= 2 {
			e.inputs[fmt.Sprintf("%s-%d", load.Combined, n)] = load.Input{Kind: load.Combined, Bytes: n, Records: 10 * n}
		}
		runs := 0
		m, err := longEnough(func(_ *env, in load.Input) (measure, error) {
			runs++
			m := of(measure{}.Run, in)
			if in.Bytes < tt.lasts {
				return m, errOver
			}
			return m, tt.fails
		})(e, e.inputs[fmt.Sprintf("%s-1", load.Combined)])
		if !errors.Is(err, tt.want) || runs != tt.runs || m.records != tt.records {
			t.Errorf("%+v: %d runs, the last one over %d records: %v", tt, runs, m.records, err)
		}
	}
}
