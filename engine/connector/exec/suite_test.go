package exec_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*exec.Options)
	}{
		{"lines", func(o *exec.Options) { o.Workers = 3; o.Env = append(o.Env, "PENSTOCK_BATCH") }},
		{"ndjson", func(o *exec.Options) { o.Protocol, o.Workers = exec.NDJSON, 2 }},
		{"storm", func(o *exec.Options) { o.Protocol, o.Workers = exec.Storm, 2 }},
		{"storm, few at once", func(o *exec.Options) { o.Protocol, o.Pending = exec.Storm, 3 }},
		{"ndjson ahead", func(o *exec.Options) { o.Protocol, o.InFlight = exec.NDJSON, 8 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			connectortest.Sink(t, connectortest.SinkCase{Start: func(t *testing.T) connectortest.Receiver {
				file := filepath.Join(t.TempDir(), "received")
				o := exec.DefaultOptions()
				c.change(o)
				o.Command = command(t, o.Protocol, file)
				// a shell starts faster than this binary, which matters with a process per batch
				if o.Protocol == exec.Lines {
					o.Command = []string{"sh", "-c",
						`cat >"$1.$$" && mv "$1.$$" "$1-$PENSTOCK_BATCH"`, "sh", file}
				}
				return connectortest.Receiver{
					New: func(t *testing.T,
						h *streamtest.Host) stream.Sink {
						return newSink(t, h, o)
					},
					Received: func(t *testing.T) []string { return received(t, file) },
				}
			}})
		})
	}
}

func newSink(t testing.TB, h *streamtest.Host, o *exec.Options) *exec.Sink {
	t.Helper()
	s, err := exec.New(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// received returns the records that the children have stored, grouped by process. An unterminated
// last line is ignored: its child was killed while writing and has not acked it.
func received(t *testing.T, file string) []string {
	t.Helper()
	files, err := filepath.Glob(file + "-*")
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, f := range files {
		part, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part[:bytes.LastIndexByte(part, '\n')+1]...)
	}
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
