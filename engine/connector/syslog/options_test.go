package syslog_test

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/connector/syslog"
)

func TestBadOptions(t *testing.T) {
	const at = "listen: '127.0.0.1:514', "
	for options, want := range map[string]string{
		"network: tcp":                         "listen",
		at + "network: tls":                    `syslog.network: there is no "tls"`,
		at + "timezone: Rome":                  `syslog.timezone is "Rome", want a name`,
		"listen: '0.0.0.0:514'":                "set insecure: true, because UDP has no tokens",
		"listen: '0.0.0.0:514', network: tcp":  "set tls.cert, tls.key and tls.client_ca",
		"listen: 'localhost:syslog'":           `"syslog" is not a port`,
		"listen: dev/log, network: unixgram":   "want an absolute path",
		at + "max_record: 32MiB":               "syslog.max_record is 32MiB, want 1B to",
		at + "memory: 1MiB":                    "syslog.memory is 1MiB, want 8MiB",
		at + "idle_timeout: 1ms":               "syslog.idle_timeout is 1ms, want 1s",
		at + "buffer: {bytes: 1GiB, age: 1h}":  "belongs to ack: buffered",
		at + "tls: {cert: /a, key: /b}":        "syslog.tls: needs network tcp",
		at + "ack: buffered, max_record: 9MiB": "with ack: buffered at most 8MiB",
	} {
		text := "pipelines: {p: {source: {syslog: {" + options + "}}, sink: memory}}"
		sink := memory.NewSink(memory.SinkOptions{})
		_, err := engine.Parse([]byte(text), syslog.Source(), sink.Component())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
}
