package trace

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func created(t *testing.T, m *vfstest.Mem, o Options) *File {
	t.Helper()
	f, err := Create(m, "/t/flow.ndjson", control.Config{}, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFileEndsWhenTheDiskIsBehind calls Event while nothing is written to disk. Event must neither
// block nor need unbounded memory.
func TestFileEndsWhenTheDiskIsBehind(t *testing.T) {
	m := vfstest.New()
	var log bytes.Buffer
	f := created(t, m, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range MaxBehind / 20 {
		f.Event(&control.Event{Kind: control.Tick}, nil, "")
	}
	if len(f.buf) > MaxBehind+endMost {
		t.Errorf("%d bytes wait, want at most %d", len(f.buf), MaxBehind)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := m.ReadFile("/t/flow.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Replay(bytes.NewReader(text))
	if err != nil || !strings.Contains(got.Ended, "which is too slow") || got.Events < 1000 {
		t.Errorf("Replay = %d events, ended %q, %v", got.Events, got.Ended, err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 ||
		!strings.Contains(log.String(), "delivery continues") {
		t.Errorf("%d lines were logged: %s", n, &log)
	}
}

func TestFileRefuses(t *testing.T) {
	for _, c := range []struct {
		name, there, text, want string
	}{
		{"another's file", "/t/flow.ndjson", "x", "is not a trace"},
		{"another's file beside it", "/t/flow.ndjson.1", "{}\n", "flow.ndjson.1 is not a trace"},
		{"an empty one", "/t/flow.ndjson", "", ""},
		{"a torn one", "/t/flow.ndjson", `{"pen`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := vfstest.New()
			if err := m.WriteFile(c.there, []byte(c.text)); err != nil {
				t.Fatal(err)
			}
			f, err := Create(m, "/t/flow.ndjson", control.Config{}, Options{})
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Create: %v, want %q in it", err, c.want)
			}
		})
	}
}
