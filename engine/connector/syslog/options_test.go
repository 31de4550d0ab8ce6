package syslog_test

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/connector/memory"
	"github.com/penstock-io/penstock/engine/connector/syslog"
)

func TestBadOptions(t *testing.T) {
	for options, want := range map[string]string{
		"network: tcp":                                             "listen",
		"listen: '127.0.0.1:514', network: tls":                    `syslog.network: there is no "tls"`,
		"listen: '127.0.0.1:514', timezone: Rome":                  "syslog.timezone is \"Rome\", want a name such as",
		"listen: '0.0.0.0:514'":                                    "set insecure: true, because UDP has no tokens",
		"listen: '0.0.0.0:514', network: tcp":                      "set tls.cert, tls.key and tls.client_ca",
		"listen: 'localhost:syslog'":                               `"syslog" is not a port`,
		"listen: dev/log, network: unixgram":                       "want an absolute path",
		"listen: '127.0.0.1:514', max_record: 32MiB":               "syslog.max_record is 32MiB, want 1B to",
		"listen: '127.0.0.1:514', memory: 1MiB":                    "syslog.memory is 1MiB, want 8MiB",
		"listen: '127.0.0.1:514', idle_timeout: 1ms":               "syslog.idle_timeout is 1ms, want 1s",
		"listen: '127.0.0.1:514', buffer: {bytes: 1GiB, age: 1h}":  "belongs to ack: buffered",
		"listen: '127.0.0.1:514', tls: {cert: /a, key: /b}":        "syslog.tls: needs network tcp",
		"listen: '127.0.0.1:514', ack: buffered, max_record: 9MiB": "with ack: buffered at most 8MiB",
	} {
		text := "pipelines: {p: {source: {syslog: {" + options + "}}, sink: memory}}"
		sink := memory.NewSink(memory.SinkOptions{})
		_, err := engine.Parse([]byte(text), syslog.Source(), sink.Component())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
}
