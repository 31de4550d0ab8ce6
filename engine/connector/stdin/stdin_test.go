package stdin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/connector/stdin"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// running is an engine that delivers the records of a reader to a channel.
type running struct {
	e     *engine.Engine
	ended chan error
	got   chan string // texts of records
}

// run starts an engine with r as stdin. options are in YAML.
func run(t *testing.T, r io.Reader, options string, once bool) *running {
	t.Helper()
	x := &running{ended: make(chan error, 1), got: make(chan string, 100_000)}
	sink := memory.NewSink(memory.SinkOptions{Deliver: func(_ context.Context, b *stream.Batch) error {
		for _, i := range b.AppendKept(nil) {
			x.got <- string(b.Text(i))
		}
		return nil
	}})
	text := fmt.Sprintf("{state: %q, pipelines: {p: {source: {stdin: {%s}}, sink: memory, batch: "+
		"{linger: 1ms}}}}", t.TempDir(), options)
	cfg, err := engine.Parse([]byte(text), stdin.From(r), sink.Component())
	if err != nil {
		t.Fatal(err)
	}
	if x.e, err = engine.New(cfg,
		engine.Options{Once: once, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan struct{})
	go func() {
		x.ended <- x.e.Run(ctx)
		close(stopped)
	}()
	t.Cleanup(func() { cancel(); <-stopped })
	return x
}

// all returns the records of a run that has ended.
func (x *running) all() []string {
	close(x.got)
	var out []string
	for text := range x.got {
		out = append(out, text)
	}
	return out
}

func TestReadsToTheEnd(t *testing.T) {
	var in bytes.Buffer
	var want []string
	for i := range 20_000 {
		text := fmt.Sprintf("record %d %s", i, strings.Repeat("x", i%40))
		want = append(want, text)
		in.WriteString(text + "\n")
	}
	in.WriteString("last")
	want = append(want, "last")
	for _, once := range []bool{true, false} {
		x := run(t, bytes.NewReader(in.Bytes()), "", once)
		if err := <-x.ended; err != nil {
			t.Errorf("once %v: Run = %v", once, err)
		}
		if got := x.all(); !slices.Equal(got, want) {
			t.Errorf("once %v: %d records arrived, want %d in their order", once, len(got), len(want))
		}
	}
}

func TestNULAndLongRecords(t *testing.T) {
	x := run(t, strings.NewReader("two\nlines\x000123456789\x00"), "delimiter: nul, max_record: 9B", true)
	if err := <-x.ended; err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%q", x.all()); got != `["two\nlines" "012345678" "9"]` {
		t.Errorf("records %s", got)
	}
}

// TestInterrupted checks that a drain delivers the records that were read, and that the run reports
// that the input had not ended.
func TestInterrupted(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	x := run(t, r, "", false)
	if _, err := io.WriteString(w, "one\ntwo\nhal"); err != nil {
		t.Fatal(err)
	}
	if a, b := <-x.got, <-x.got; a != "one" || b != "two" {
		t.Fatalf("got %q and %q", a, b)
	}
	x.e.Drain()
	err := <-x.ended
	if err == nil || !strings.Contains(err.Error(), "standard input had not ended") ||
		strings.Contains(err.Error(), "supervise:") {
		t.Errorf("Run = %v", err)
	}
}

// TestReadError checks that records before a read error are delivered, and that the run fails with
// the error.
func TestReadError(t *testing.T) {
	broken := errors.New("the disk is on fire")
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, "one\ntwo")
		_ = w.CloseWithError(broken)
	}()
	x := run(t, r, "", false)
	if err := <-x.ended; !errors.Is(err, broken) {
		t.Errorf("Run = %v", err)
	}
	if got := x.all(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("arrived %q", got)
	}
}

// TestApplyKeepsTheRest checks that a recreated source continues in the middle of a record.
func TestApplyKeepsTheRest(t *testing.T) {
	r, w := io.Pipe()
	c := stdin.From(r)
	read := func(want string) {
		h := streamtest.NewHost(t)
		made, err := c.New(stdin.DefaultOptions(), h)
		if err != nil {
			t.Fatal(err)
		}
		reader, err := made.(stream.Source).Open(t.Context(), stream.OpenOptions{
			Route: streamtest.Route, Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
		})
		if err != nil {
			t.Fatal(err)
		}
		b := stream.NewBatch(stream.BatchLimits{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := reader.Read(ctx, b); err != nil || string(b.Data) != want {
			t.Errorf("read %q, %v; want %q", b.Data, err, want)
		}
		_ = h.Stop() // reports that the input had not ended
	}
	go func() { _, _ = io.WriteString(w, "one\nhal") }()
	read("one\n")
	go func() { _, _ = io.WriteString(w, "f\n") }()
	read("half\n")
	go func() { _ = w.Close() }()
}

func TestOneInputForAll(t *testing.T) {
	text := `pipelines:
  a: { source: stdin, sink: memory }
  b: { source: stdin, sink: memory }
`
	_, err := engine.Parse([]byte(text), stdin.Source(), memory.NewSink(memory.SinkOptions{}).Component())
	want := "source stdin: standard input is used by source stdin in line 2; only one component can have it"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Parse = %v", err)
	}
	for options, want := range map[string]string{
		"delimiter: tab": `stdin.delimiter: there is no "tab"`,
		"memory: 1MiB":   "stdin.memory is 1MiB, want 8MiB or more",
		"memory: 2GiB":   "stdin.memory is 2GiB, want less than 1GiB",
		"max_record: 0B": "stdin.max_record is 0B, want 1B to a quarter of memory, 16MiB",
		"max_size: 1MiB": "max_size",
	} {
		text := fmt.Sprintf("pipelines: {p: {source: {stdin: {%s}}, sink: memory}}", options)
		_, err := engine.Parse([]byte(text), stdin.Source(), memory.NewSink(memory.SinkOptions{}).Component())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
}

func TestBadOptions(t *testing.T) {
	one := func(options string) string {
		return "pipelines: {p: {source: {stdin: {" + options + "}}, sink: memory}}"
	}
	const two = "pipelines: {p: {source: stdin, sink: memory}, q: {source: stdin, sink: memory}}"
	for text, want := range map[string]string{
		two:                   "standard input is used by source stdin",
		one("delimiter: tab"): `stdin.delimiter: there is no "tab"`,
		one("memory: 1MiB"):   "stdin.memory is 1MiB, want 8MiB or more",
		one("memory: 2GiB"):   "stdin.memory is 2GiB, want less than 1GiB",
		one("max_record: 0B"): "stdin.max_record is 0B, want 1B to a quarter of memory",
		one("max_records: 1"): "max_records",
	} {
		sink := memory.NewSink(memory.SinkOptions{})
		_, err := engine.Parse([]byte(text), stdin.From(nil), sink.Component())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
