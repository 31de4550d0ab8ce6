package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/config"
)

// Result is the result of a test.
type Result struct {
	Differences []string // empty if the test has passed
	Steps       []Step
}

// Test runs a test of the config on c. The chain c must have the processors of the test's route.
// The result describes how the records differ from the expected ones. If a processor itself fails,
// Test returns an error.
func (c *Chain) Test(ctx context.Context, t *config.Test) (r Result, err error) {
	lines := make([][]byte, len(t.Input))
	for i, in := range t.Input {
		if text, ok := in.Text(); ok {
			lines[i] = []byte(text)
			continue
		}
		lines[i] = []byte(in.JSON())
	}
	if r.Steps, err = c.Process(ctx, lines); err != nil {
		return r, err
	}
	r.Differences = differences(t, r.Steps[len(r.Steps)-1].Records)
	return r, nil
}

// differences compares the records of the last step with those that the test expects.
func differences(t *config.Test, records []Record) (out []string) {
	var delivered, dead []Record
	for _, r := range records {
		switch r.Fate {
		case Delivered:
			delivered = append(delivered, r)
		case Dead:
			dead = append(dead, r)
		}
	}
	for i := range max(len(delivered), len(t.Expect)) {
		switch {
		case i >= len(t.Expect):
			out = append(out,
				fmt.Sprintf("record %d, of input %d, is not expected\n  + %s", i+1,
					delivered[i].Line, delivered[i].JSON))
		case i >= len(delivered):
			out = append(out,
				fmt.Sprintf("record %d is missing\n  - %s", i+1, expected(t.Expect[i])))
		default:
			if d := compare(expected(t.Expect[i]), delivered[i].JSON); d != "" {
				out = append(out,
					fmt.Sprintf("record %d, of input %d, differs\n%s", i+1, delivered[i].Line, d))
			}
		}
	}
	for i := range max(len(dead), len(t.Dead)) {
		switch {
		case i >= len(t.Dead):
			out = append(out,
				fmt.Sprintf("input %d is not expected to be a dead letter\n  + %s", dead[i].Line,
					dead[i].Reason))
		case i >= len(dead):
			out = append(out, fmt.Sprintf("dead letter %d is missing\n  - %s", i+1, t.Dead[i]))
		case !strings.Contains(dead[i].Reason, t.Dead[i]):
			out = append(out, fmt.Sprintf("dead letter %d, of input %d, has another reason\n  - "+
				"%s\n  + %s",
				i+1, dead[i].Line, t.Dead[i], dead[i].Reason))
		}
	}
	return out
}

// expected returns the JSON form of an expected record. A text stands for the unparsed record
// {"message": text}.
func expected(v config.Value) string {
	if text, ok := v.Text(); ok {
		v = config.ValueOf(map[string]string{"message": text})
	}
	return v.JSON()
}

// compare returns the fields that differ between two records, as lines with their wanted values (-)
// and their actual values (+). It returns "" if the records are equal. Numbers are compared by
// value: 1.0 equals 1.
func compare(want, got string) string {
	w, wantIsObject := object(want)
	g, gotIsObject := object(got)
	if !wantIsObject || !gotIsObject {
		if want == got {
			return ""
		}
		return fmt.Sprintf("  - %s\n  + %s", want, got)
	}
	names := map[string]bool{}
	for name := range w {
		names[name] = true
	}
	for name := range g {
		names[name] = true
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, inWant := w[name]
		b, inGot := g[name]
		if inWant && inGot && reflect.DeepEqual(normal(a), normal(b)) {
			continue
		}
		if inWant {
			lines = append(lines, fmt.Sprintf("  - %s: %s", name, encode(a)))
		}
		if inGot {
			lines = append(lines, fmt.Sprintf("  + %s: %s", name, encode(b)))
		}
	}
	return strings.Join(lines, "\n")
}

func object(text string) (fields map[string]any, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return fields, d.Decode(&fields) == nil && fields != nil
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// normal returns v with each number replaced by a form that is the same for equal numbers. Integers
// in the range of int64 or uint64 keep all their digits. Other numbers are rounded to a float64.
func normal(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return json.Number(strconv.FormatInt(n, 10))
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return json.Number(strconv.FormatUint(n, 10))
		}
		f, err := v.Float64()
		if err != nil {
			return v
		}
		switch whole := f == math.Trunc(f); {
		case whole && 0 <= f && f < 1<<64:
			return json.Number(strconv.FormatUint(uint64(f), 10))
		case whole && -1<<63 <= f && f < 0:
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = normal(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			out[name] = normal(value)
		}
		return out
	}
	return v
}
