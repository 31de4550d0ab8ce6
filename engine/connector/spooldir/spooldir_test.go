package spooldir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// options returns the defaults with path set, modified by change.
func options(path string, change func(*spooldir.Options)) *spooldir.Options {
	o := spooldir.Source().Options().(*spooldir.Options)
	o.Path = path
	if change != nil {
		change(o)
	}
	return o
}

// put writes a file with an old modification time.
func put(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	var want [][]string
	for i, n := range []int{40, 0, 3, 1, 25, 2, 2, 2, 60} {
		text, lines := "", []string(nil)
		for k := range n {
			line := fmt.Sprintf("file %d line %d of %d %0*d", i, k, n, k*7%40, 0)
			lines = append(lines, line)
			text += line + "\n"
		}
		if i == 4 {
			text = text[:len(text)-1]
		}
		put(t, dir, fmt.Sprintf("%d.log", i), text)
		want = append(want, lines)
	}
	for _, finished := range []string{"keep", "rename"} {
		t.Run(finished, func(t *testing.T) {
			connectortest.Source(t, connectortest.SourceCase{
				Want: want,
				New: func(t *testing.T, h *streamtest.Host) stream.Source {
					o := options(dir, func(o *spooldir.Options) { o.Finished = finished })
					s, err := spooldir.Source().New(o, h)
					if err != nil {
						t.Fatal(err)
					}
					return s.(stream.Source)
				},
			})
		})
	}
}
