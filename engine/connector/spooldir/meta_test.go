package spooldir_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/spooldir"
	"github.com/penstock-io/penstock/engine/kit/origin"
	"github.com/penstock-io/penstock/stream"
)

// TestMeta checks that the option meta adds the offset of a record and the parts of the file's
// path. A pattern in meta.path that begins with a slash is matched against the whole path.
func TestMeta(t *testing.T) {
	bubble(t, func(o *spooldir.Options) {
		o.Recursive = true
		o.Meta = origin.Options{Offset: "at", Path: filepath.ToSlash(o.Path) + "/{app}/{day}.log"}
	}, func(t *testing.T, w *fixture) {
		put(t, w.dir, "shop/21.log", "one\ntwo\n")
		var got strings.Builder
		w.onBatch = func(b *stream.Batch) {
			for i := range b.Records {
				for _, f := range b.FieldsOf(i) {
					fmt.Fprintf(&got, "%s=%s ", b.Names[f.Name], b.Value(f))
				}
			}
			b.Data = b.Data[:b.RawBytes()] // fixture checks the raw bytes
		}
		if err := w.once(); err != nil {
			t.Fatal(err)
		}
		if want := "message=one at=0 app=shop day=21 message=two at=4 app=shop day=21 "; got.String() != want {
			t.Errorf("fields %q, want %q", got.String(), want)
		}
	})
}
