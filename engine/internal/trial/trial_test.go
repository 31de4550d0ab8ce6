package trial

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// parsed returns the only route of a config with the given processors, and its tests.
func parsed(t *testing.T, processors, tests string) (*config.Config, *config.Route) {
	t.Helper()
	text := "pipelines: {p: {source: {tail: {include: [./in]}}, processors: " + processors +
		", sink: {file: {path: ./out}}}}\ntests: " + tests + "\n"
	c, err := config.Parse("config", []byte(text), config.LoadOptions{Components: all.Components()})
	if err != nil {
		t.Fatal(err)
	}
	return c, &c.Pipelines[0].Routes[0]
}

func TestProcess(t *testing.T) {
	_, r := parsed(t, `[{parse: {format: json}}, {where: "a > 1"}, {drop: [b]}]`, "[]")
	chain, err := New(r, slog.New(slog.DiscardHandler), vfs.OS())
	if err != nil {
		t.Fatal(err)
	}
	var steps []Step
	err = chain.Run(t.Context(), func(ctx context.Context) (err error) {
		lines := [][]byte{[]byte(`{"a":2,"b":3}`), []byte(`{"a":1}`), []byte("x")}
		steps, err = chain.Process(ctx, lines)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{
		{Records: []Record{
			{1, Delivered, `{"message":"{\"a\":2,\"b\":3}"}`, ""},
			{2, Delivered, `{"message":"{\"a\":1}"}`, ""},
			{3, Delivered, `{"message":"x"}`, ""},
		}},
		{"parse", []Record{
			{1, Delivered, `{"a":2,"b":3}`, ""}, {2, Delivered, `{"a":1}`, ""},
			{3, Dead, `{"message":"x"}`, "?"},
		}, 3},
		{"where", []Record{
			{1, Delivered, `{"a":2,"b":3}`, ""}, {2, Dropped, `{"a":1}`, ""},
			{3, Dead, `{"message":"x"}`, "?"},
		}, 1},
		{"drop", []Record{
			{1, Delivered, `{"a":2}`, ""}, {2, Dropped, `{"a":1}`, ""},
			{3, Dead, `{"message":"x"}`, "?"},
		}, 1},
	}
	for i := range steps {
		for j := range steps[i].Records {
			if r := &steps[i].Records[j]; r.Fate == Dead {
				if !strings.Contains(r.Reason, "parse json") {
					t.Errorf("reason %q", r.Reason)
				}
				r.Reason = "?"
			}
		}
	}
	if !reflect.DeepEqual(steps, want) {
		t.Errorf("got  %+v\nwant %+v", steps, want)
	}
}

// TestTest runs tests that pass, and tests that fail in every possible way.
func TestTest(t *testing.T) {
	c, r := parsed(t, `[{parse: {format: json}}]`, `
  - {name: passes, input: ['{"a":1.0}', {b: {c: [1, null]}}, x], expect: [{a: 1}, {b: {c: [1.0, null]}}], dead: [json]}
  - {name: large numbers, input: ['{"a":9007199254740993}'], expect: [{a: 9007199254740992}]}
  - {name: larger than int64, input: ['{"a":18446744073709551615}'],
     expect: [{a: 18446744073709551614}]}
  - {name: as large, input: ['{"a":18446744073709551615}', '{"a":1e19}', '{"a":-1e3}'],
     expect: [{a: 18446744073709551615}, {a: 10000000000000000000}, {a: -1000}]}
  - {name: field, input: [{a: 1, b: 2}], expect: [{a: 2, c: 3}]}
  - {name: missing, input: [{a: 1}], expect: [{a: 1}, {a: 2}]}
  - {name: not expected, input: [{a: 1}, {a: 2}], expect: [{a: 1}]}
  - {name: line ends, input: ["a\nb\n", "c\r", "d"], dead: [json, json, json]}
  - {name: text, input: [{a: 1}], expect: [x]}
  - {name: dead, input: [x], expect: [{message: x}]}
  - {name: dead for another reason, input: [x], dead: [regex]}
  - {name: not dead, input: [{a: 1}], expect: [{a: 1}], dead: [json]}
`)
	want := map[string][]string{
		"passes": nil, "line ends": nil,
		"large numbers": {"record 1, of input 1, differs\n  - a: 9007199254740992\n  + " +
			"a: 9007199254740993"},
		"larger than int64": {"record 1, of input 1, differs\n  - a: 18446744073709551614\n  + " +
			"a: 18446744073709551615"},
		"as large": nil,
		"field": {"record 1, of input 1, differs\n  - a: 2\n  + a: 1\n  + b: " +
			"2\n  - c: 3"},
		"missing":      {"record 2 is missing\n  - {\"a\":2}"},
		"not expected": {"record 2, of input 2, is not expected\n  + {\"a\":2}"},
		"text":         {"record 1, of input 1, differs\n  + a: 1\n  - message: \"x\""},
		"dead": {"record 1 is missing\n  - {\"message\":\"x\"}",
			"input 1 is not expected to be a dead letter"},
		"dead for another reason": {"dead letter 1, of input 1, has another reason\n  - regex"},
		"not dead":                {"dead letter 1 is missing\n  - json"},
	}
	for i := range c.Tests {
		test := &c.Tests[i]
		chain, err := New(r, slog.New(slog.DiscardHandler), vfs.OS())
		if err != nil {
			t.Fatal(err)
		}
		err = chain.Run(t.Context(), func(ctx context.Context) error {
			result, err := chain.Test(ctx, test)
			got, ok := result.Differences, len(result.Differences) == len(want[test.Name])
			for i := range got {
				ok = ok && strings.HasPrefix(got[i], want[test.Name][i])
			}
			if !ok {
				t.Errorf("%s: got %q, want %q", test.Name, got, want[test.Name])
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", test.Name, err)
		}
	}
}

// failing is a processor with a goroutine, which reports a fault and fails.
type failing struct{ host stream.Host }

func (p *failing) Process(ctx context.Context, _ *stream.Batch) error {
	p.host.Go("helper", func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	p.host.Fault(errors.New("a doubtful line"))
	return errors.New("no such program")
}

func TestProcessorFails(t *testing.T) {
	r := &config.Route{Processors: []config.Use{{Component: stream.Component{
		Role: stream.ProcessorRole, Name: "failing",
		New: func(_ any, h stream.Host) (any, error) { return &failing{h}, nil },
	}}}}
	chain, err := New(r, slog.New(slog.DiscardHandler), vfs.OS())
	if err != nil {
		t.Fatal(err)
	}
	err = chain.Run(t.Context(), func(ctx context.Context) error {
		_, err := chain.Process(ctx, [][]byte{[]byte("x")})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "a doubtful line") ||
		!strings.Contains(err.Error(), "processor 1, failing: no such program") {
		t.Errorf("Run = %v", err)
	}
}
