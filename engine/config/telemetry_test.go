package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
)

func TestTelemetry(t *testing.T) {
	const noURL = "is not an http or https URL"
	url := func(text string) func(*config.Telemetry) {
		return func(c *config.Telemetry) { c.OTLP = text }
	}
	good := config.Telemetry{OTLP: "http://127.0.0.1:4318", Interval: time.Second, Traces: .5}
	for _, c := range []struct {
		name   string
		change func(*config.Telemetry)
		want   string
	}{
		{"good", func(*config.Telemetry) {}, ""},
		{"off", func(c *config.Telemetry) { *c = config.Telemetry{} }, ""},
		{"no scheme", url("127.0.0.1:4318"), noURL},
		{"gRPC", url("grpc://h:4317"), noURL},
		{"no host", url("http://"), noURL},
		{"query", url("http://h/?key=hunter2"), "has a query or fragment"},
		{"short", func(c *config.Telemetry) { c.Interval = time.Millisecond }, "may be 1s to 1h"},
		{"long", func(c *config.Telemetry) { c.Interval = 2 * time.Hour }, "may be 1s to 1h"},
		{"share", func(c *config.Telemetry) { c.Traces = 1.5 }, "want a share, 0 to 1"},
		{"negative share", func(c *config.Telemetry) { c.Traces = -1 }, "want a share, 0 to 1"},
	} {
		got := good
		c.change(&got)
		err := got.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message has the secret: %v", c.name, err)
		}
	}
}
