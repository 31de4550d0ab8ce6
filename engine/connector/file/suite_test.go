package file_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	for _, o := range []file.Options{
		{Format: file.Raw, Fsync: file.SyncAck},
		{Format: file.Raw, Fsync: file.SyncInterval},
		{Format: file.NDJSON, Fsync: file.SyncAck},
	} {
		t.Run(o.Format+" "+o.Fsync, func(t *testing.T) {
			connectortest.Sink(t, connectortest.SinkCase{ExactlyOnce: true,
				Start: func(t *testing.T) connectortest.Receiver {
					o := o
					o.Path = filepath.Join(t.TempDir(), "made", "out.log")
					return connectortest.Receiver{
						New: func(t *testing.T, h *streamtest.Host) stream.Sink {
							s, err := file.New(o, h)
							if err != nil {
								t.Fatal(err)
							}
							return s
						},
						Received: func(t *testing.T) []string { return recordsIn(t, o.Path, o.Format) },
					}
				}})
		})
	}
}

// recordsIn returns the records of a file, which must end with a line end.
func recordsIn(t *testing.T, path, format string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) == 0 {
		return nil
	}
	all := strings.Split(string(text), "\n")
	if all[len(all)-1] != "" {
		t.Fatalf("%s does not end with a line end", path)
	}
	all = all[:len(all)-1]
	if format == file.NDJSON {
		for i := range all {
			var r struct{ Message string }
			if err := json.Unmarshal([]byte(all[i]), &r); err != nil {
				t.Fatalf("line %d: %v", i+1, err)
			}
			all[i] = r.Message
		}
	}
	return all
}
