package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// stuckWriter blocks writes while the test holds gate, like a full pipe.
type stuckWriter struct {
	gate sync.Mutex // held by the test while the writer is stuck
	text bytes.Buffer
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	w.gate.Lock()
	defer w.gate.Unlock()
	return w.text.Write(p)
}

// TestOutputNeverBlocks writes more than the queue holds to a blocked stream. No write may wait,
// the first lines must be kept in order, and the line after the gap must have the number of
// dropped lines.
func TestOutputNeverBlocks(t *testing.T) {
	w := new(stuckWriter)
	w.gate.Lock()
	o := newOutput(w)
	line := strings.Repeat("x", 1000)
	const lines = 3000
	for n := range lines {
		if written, err := fmt.Fprintf(o, "%d %s\n", n, line); err != nil || written < len(line) {
			t.Fatalf("line %d: %d, %v", n, written, err)
		}
	}
	if o.flush(time.Millisecond) {
		t.Error("flush reports that a stuck stream has taken everything")
	}
	w.gate.Unlock()
	if !o.flush(time.Minute) {
		t.Fatal("the stream is free and not everything is written")
	}
	kept := strings.Count(w.text.String(), line)
	if kept < maxQueued/1100 || kept >= lines {
		t.Errorf("%d of %d lines are kept", kept, lines)
	}
	want := fmt.Sprintf("\npenstock: %d lines were dropped because stderr was blocked\n", lines-kept)
	if !strings.HasSuffix(w.text.String(), want) {
		t.Errorf("the end is %.200q, want %q", w.text.String()[w.text.Len()-200:], want)
	}
	for n, text := range strings.SplitN(w.text.String(), "\n", kept+1)[:kept] {
		if !strings.HasPrefix(text, fmt.Sprintf("%d ", n)) {
			t.Fatalf("line %d begins with %.10q", n, text)
		}
	}
}

// TestBlockedStderr drains a run with a stderr that is blocked from the start. The exit code must
// be that of any other drained run.
func TestBlockedStderr(t *testing.T) {
	inFolder(t)
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		e := newFake()
		e.end = someRoutes()
		p := newProgram(e, nil)
		done := make(chan int)
		var out bytes.Buffer
		go func() {
			done <- p.execute(t.Context(), []string{"run", "penstock.yaml"}, nil, &out,
				writerFunc(func(b []byte) (int, error) {
					<-free
					return len(b), nil
				}))
		}()
		<-e.running
		time.Sleep(time.Hour) // hundreds of progress lines
		e.Drain()
		if code := <-done; code != exitOK || !strings.Contains(out.String(), "access") {
			t.Errorf("code %d, summary %q", code, out.String())
		}
		close(free)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestBrokenStderr checks a run with a pipe without a reader as its stderr.
func TestBrokenStderr(t *testing.T) {
	inFolder(t)
	e := newFake()
	e.once = true
	broken := writerFunc(func([]byte) (int, error) { return 0, errors.New("broken pipe") })
	var out bytes.Buffer
	args := []string{"run", "--once", "penstock.yaml"}
	if code := newProgram(e, nil).execute(t.Context(), args, nil, &out, broken); code != exitOK {
		t.Errorf("code %d", code)
	}
}

// TestOnlyJSON checks that every line is JSON with --log-format json. This includes the errors
// about a wrong config or a wrong command line.
func TestOnlyJSON(t *testing.T) {
	inFolder(t)
	for _, args := range [][]string{
		{"run", "--once", "--log-format", "json", "penstock.yaml"},
		{"run", "--once", "--log-format=json", "wrong.yaml"},
		{"run", "--once", "--log-format=json", "missing.yaml"},
		{"run", "--log-format", "json", "--stall", "1s", "penstock.yaml"},
		{"run", "--log-format", "json", "--no-such-flag"},
		{"run", "--log-format", "json"},
	} {
		e := newFake()
		e.once, e.err = true, errors.New("it failed\nin two lines")
		got := newProgram(e, nil).try(t, args...)
		if got.code == exitOK {
			t.Errorf("%q: exit code 0", args)
		}
		lines := strings.Split(strings.TrimSuffix(got.stderr+got.out, "\n"), "\n")
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q: a line is no JSON: %q", args, line)
			}
		}
	}
}
