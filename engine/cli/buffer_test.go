//go:build !no_nats

package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/buffer"
)

// bufferedConfig has a source with a durable buffer, and a sink.
const bufferedConfig = `state: ./state
pipelines:
  push:
    source: { http_server: { listen: "ADDRESS", ack: buffered } }
    sink: SINK
`

// runBuffered runs the config until do returns.
func runBuffered(t *testing.T, address, sink string, do func()) {
	t.Helper()
	text := strings.NewReplacer("ADDRESS", address, "SINK", sink).Replace(bufferedConfig)
	if err := os.WriteFile("penstock.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := engine.Load("penstock.yaml", all.Components()...)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(c, engine.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx) // it is stopped
	}()
	do()
	cancel()
	<-ended
}

// post sends a record repeatedly until it is acknowledged.
func post(t *testing.T, address, record string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		response, err := http.Post("http://"+address+"/", "text/plain", strings.NewReader(record+"\n"))
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q is not acknowledged: %v", record, err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// TestBuffer stores records while the sink is unreachable. Then it damages one of their envelopes
// (stored batches), and skips this envelope. The other records must be delivered.
func TestBuffer(t *testing.T) {
	t.Chdir(t.TempDir())
	address := connectortest.FreeAddress(t)
	const down = `{ http: { endpoints: ["http://127.0.0.1:1"], body: raw } }`
	try := func(args, want string, code int) {
		t.Helper()
		got := realProgram().try(t, strings.Fields(args)...)
		if got.code != code || !strings.Contains(got.out+got.stderr, want) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s%s",
				args, got.code, code, want, got.out, got.stderr)
		}
	}
	runBuffered(t, address, down, func() {
		for _, record := range []string{"first record", "second record", "third record"} {
			post(t, address, record)
		}
		try("buffer list penstock.yaml", "stop the run first", 1)
	})
	try("buffer list penstock.yaml", "3 envelopes, 0 corrupt", 0)
	try("buffer show penstock.yaml 2", "second record", 0)
	try("buffer show --json penstock.yaml 2", `"texts":["second record"]`, 0)
	try("buffer show penstock.yaml 7", "there is no envelope 7; stored are 1 to 3", 1)
	try("buffer skip penstock.yaml 2", "envelope 2 is intact, and its 1 records would be lost", 1)

	block := filepath.FromSlash("state/sources/push/buffer/jetstream/$G/streams/buffer/msgs/1.blk")
	data, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.Index(data, []byte("second record"))] ^= 1
	if err := os.WriteFile(block, data, 0o600); err != nil {
		t.Fatal(err)
	}
	try("buffer list penstock.yaml", "3 envelopes, 1 corrupt", 1)
	try("buffer list --corrupt --json penstock.yaml", `{"ok":false,"envelopes":3,"corrupt":1}`, 1)
	try("buffer skip penstock.yaml 1-2", "envelope 1 is intact", 1)
	try("buffer skip penstock.yaml 2-9", "2 to 9 are not in the buffer; stored are 1 to 3", 1)
	try("buffer skip penstock.yaml 2", "push: the next run skips 1 envelope", 0)
	try("buffer list penstock.yaml", "(skipped)", 0)
	runBuffered(t, address, "{ file: { path: out.log, format: raw } }", func() {
		deadline := time.Now().Add(30 * time.Second)
		for {
			text, _ := os.ReadFile("out.log") // it is created with the first record
			if string(text) == "first record\nthird record\n" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the file has %q", text)
			}
			<-time.After(10 * time.Millisecond)
		}
	})
}

// TestBufferSkipLost deletes the first envelope (stored batch) from the store, as a loss of data
// would. The command `buffer skip` must still be able to skip this envelope.
func TestBufferSkipLost(t *testing.T) {
	t.Chdir(t.TempDir())
	address := connectortest.FreeAddress(t)
	runBuffered(t, address, `{ http: { endpoints: ["http://127.0.0.1:1"], body: raw } }`, func() {
		post(t, address, "first record")
		post(t, address, "second record")
	})
	store, err := buffer.OpenStore(t.Context(), filepath.FromSlash("state/sources/push/buffer"),
		buffer.DefaultOptions(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Purge(t.Context(), 2), store.Close()); err != nil {
		t.Fatal(err)
	}
	got := realProgram().try(t, "buffer", "skip", "penstock.yaml", "1")
	if got.code != 0 || !strings.Contains(got.out, "push: the next run skips 1 envelope") {
		t.Errorf("exit code %d\n%s%s", got.code, got.out, got.stderr)
	}
}

// TestBufferRefuses checks that wrong uses of the commands are refused.
func TestBufferRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("state", 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, source string) {
		text := "state: ./state\npipelines:\n  push:\n    source: " + source + "\n    sink: {drop: {}}\n"
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("delivered.yaml", `{http_server: {listen: "127.0.0.1:0"}}`)
	write("buffered.yaml", `{http_server: {listen: "127.0.0.1:0", ack: buffered}}`)
	for args, want := range map[string]string{
		"buffer list":                                "needs a config",
		"buffer list delivered.yaml":                 "no source of delivered.yaml has ack: buffered",
		"buffer list --pipeline other buffered.yaml": `no pipeline "other" of buffered.yaml`,
		"buffer show buffered.yaml":                  "needs a config and an envelope's number",
		"buffer show buffered.yaml x":                `"x" is not an envelope; write a number such as 17`,
		"buffer show buffered.yaml 1-2":              `"1-2" is a range; show prints one envelope`,
		"buffer skip buffered.yaml 3-2":              `"3-2" is not an envelope`,
		"buffer skip buffered.yaml 0":                `"0" is not an envelope`,
	} {
		got := realProgram().try(t, strings.Fields(args)...)
		if got.code != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit code %d, want 2 with %q\n%s", args, got.code, want, got.stderr)
		}
	}
	got := realProgram().try(t, "buffer", "skip", "buffered.yaml", "3")
	if want := "nothing has been stored yet"; got.code != 1 || !strings.Contains(got.stderr, want) {
		t.Errorf("exit code %d, want 1 with %q\n%s", got.code, want, got.stderr)
	}
}
