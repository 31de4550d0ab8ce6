package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/bench/load"
)

// TestLongEnough checks that a job which ends before the last kill is repeated with twice the
// input, but at most twice. A job that failed, or that lost or repeated records, must not run
// again.
func TestLongEnough(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		lasts          int64 // bytes that are enough
		lost, repeated int64
		fails          error
		runs           int
		kills          float64
	}{
		{1, 0, 0, nil, 1, kills}, {2, 0, 0, nil, 2, kills}, {4, 0, 0, nil, 3, kills},
		{5, 0, 0, nil, 3, 2},
		{2, 1, 0, nil, 1, 2}, {2, 0, 7, nil, 1, 2}, {2, 0, 0, failed, 1, 2},
	} {
		e := &env{inputs: make(map[string]load.Input)}
		for n := int64(1); n <= 8; n *= 2 {
			e.inputs[fmt.Sprintf("%s-%d", load.Combined, n)] = load.Input{Kind: load.Combined,
				Bytes: n, Records: 10 * n}
		}
		runs := 0
		m, err := longEnough(exact, func(_ *env, in load.Input) (measure, error) {
			runs++
			m := of(measure{}.Run, in)
			m.lost, m.repeated, m.figures["kills"] = tt.lost, tt.repeated, kills
			if in.Bytes < tt.lasts {
				m.figures["kills"] = 2
			}
			return m, tt.fails
		})(e, e.inputs[fmt.Sprintf("%s-1", load.Combined)])
		if err != tt.fails || runs != tt.runs || m.figures["kills"] != tt.kills {
			t.Errorf("%+v: %d runs, %v kills in the last one: %v", tt, runs,
				m.figures["kills"], err)
		}
	}
}
