package cli

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/connector/all"
)

// TestWorkerSource checks that the flags become the source of a config that has no source. A config
// with a source must be refused.
func TestWorkerSource(t *testing.T) {
	w := workerFlags{listen: "127.0.0.1:0", format: "ndjson", slots: 2}
	load := func(text string) error {
		o := config.LoadOptions{Components: all.Components(), Source: w.source()}
		_, err := config.Parse("worker.yaml", []byte(text), o)
		return err
	}
	if err := load("pipelines: {p: {sink: drop}}"); err != nil {
		t.Error(err)
	}
	err := load("pipelines: {p: {source: stdin, sink: drop}}")
	if err == nil || !strings.Contains(err.Error(), "the command line gives another one") {
		t.Errorf("a config with a source: %v", err)
	}
	w.listen = "0.0.0.0:0"
	if err := load("pipelines: {p: {sink: drop}}"); err == nil {
		t.Error("a worker listens beyond loopback without --insecure")
	}
}
