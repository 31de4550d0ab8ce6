package push_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/stream"
)

func options() push.Options {
	return push.Options{
		Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(), Memory: intake.MinMemory,
		Connections: 10, IdleTime: time.Minute,
	}
}

func socketOptions() *push.SocketOptions {
	return &push.SocketOptions{Network: "tcp", Listen: "127.0.0.1:0", Options: options()}
}

func serverOptions() *push.ServerOptions {
	return &push.ServerOptions{
		Listen: "127.0.0.1:0", Deadline: 10 * time.Second, MaxRecord: 1 << 10, Options: options(),
	}
}

// checkError checks that an error contains the given text. If the text is empty, there must be no
// error.
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one with %q", err, want)
	}
}

// TestSocketOptions checks the limits of each option, from both sides.
func TestSocketOptions(t *testing.T) {
	type options = push.SocketOptions
	for name, c := range map[string]struct {
		change func(o *options)
		want   string // "" means that the options are valid
	}{
		"valid":      {func(*options) {}, ""},
		"network":    {func(o *options) { o.Network = "sctp" }, `network: is "sctp"`},
		"ack":        {func(o *options) { o.Ack = "never" }, `ack: is "never"`},
		"no address": {func(o *options) { o.Listen = "" }, "listen: is missing"},
		"name":       {func(o *options) { o.Listen = "host:1" }, `"host" is not an IP address`},
		"open address": {
			func(o *options) { o.Listen = ":1" },
			"can be reached from other machines",
		},
		"insecure": {func(o *options) { o.Listen, o.Insecure = ":1", true }, ""},
		"relative path": {
			func(o *options) { o.Network, o.Listen = "unix", "s" },
			"want an absolute path",
		},
		"path": {func(o *options) { o.Network, o.Listen = "unixgram", "/s" }, ""},
		"TLS over UDP": {
			func(o *options) { o.Network, o.TLS.Cert = "udp", "c" },
			"tls: needs network tcp",
		},
		"TLS without key": {
			func(o *options) { o.TLS.Cert = "c" },
			"tls.key: is missing",
		},
		"idle 1s": {func(o *options) { o.IdleTime = time.Second }, ""},
		"idle too short": {
			func(o *options) { o.IdleTime = time.Second - 1 },
			"idle_timeout: is 999.999999ms",
		},
		"no connections": {
			func(o *options) { o.Connections = 0 },
			"connections: is 0",
		},
		"most connections": {
			func(o *options) { o.Connections = listen.MaxConnections },
			"",
		},
		"too many": {
			func(o *options) { o.Connections = listen.MaxConnections + 1 },
			"connections: is 100001",
		},
		"little memory": {
			func(o *options) { o.Memory = intake.MinMemory - 1 },
			"memory: is",
		},
		"much memory": {
			func(o *options) { o.Memory = intake.MaxSubmission + 1 },
			"memory: is",
		},
		"buffer": {
			func(o *options) { o.Ack, o.Buffer.Bytes = buffer.Buffered, 1 },
			"buffer",
		},
		"several": {
			func(o *options) { o.Connections, o.Listen = 0, "" },
			"listen: is missing: write HOST:PORT, such as 127.0.0.1:8080\nconnections: is 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := socketOptions()
			c.change(o)
			checkError(t, o.Check(1<<10), c.want)
		})
	}
	for size, want := range map[stream.Size]string{
		0: "max_record: is", intake.MinMemory / 4: "", intake.MinMemory/4 + 1: "max_record: is",
	} {
		checkError(t, socketOptions().Check(size), want)
	}
}

// TestServerOptions checks the limits of each option, from both sides.
func TestServerOptions(t *testing.T) {
	type options = push.ServerOptions
	const maxBody = 4 << 10
	for name, c := range map[string]struct {
		change func(o *options)
		want   string // "" means that the options are valid
	}{
		"valid":      {func(*options) {}, ""},
		"no address": {func(o *options) { o.Listen = "" }, "listen: is missing"},
		"open address": {
			func(o *options) { o.Listen = ":1" },
			"set a token, or tls.client_ca",
		},
		"token without TLS": {
			func(o *options) { o.Listen, o.Token = ":1", "long enough" },
			"set tls.cert and tls.key",
		},
		"insecure": {func(o *options) { o.Listen, o.Insecure = ":1", true }, ""},
		"shortest deadline": {
			func(o *options) { o.Deadline = 100 * time.Millisecond },
			"",
		},
		"no deadline":      {func(o *options) { o.Deadline = 0 }, "deadline: is 0s"},
		"longest deadline": {func(o *options) { o.Deadline = time.Hour }, ""},
		"longer deadline": {
			func(o *options) { o.Deadline = time.Hour + 1 },
			"deadline: is",
		},
		"idle too short": {
			func(o *options) { o.IdleTime = 0 },
			"idle_timeout: is 0s",
		},
		"idle too long": {
			func(o *options) { o.IdleTime = 25 * time.Hour },
			"idle_timeout: is 25h",
		},
		"short token": {
			func(o *options) { o.Token = "1234567" },
			"token: has fewer than 8",
		},
		"both": {
			func(o *options) { o.Token, o.Tokens = "12345678", listen.Tokens{"a": "12345678"} },
			"token: cannot be combined with tokens",
		},
		"no connections": {
			func(o *options) { o.Connections = 0 },
			"connections: is 0",
		},
		"little memory": {
			func(o *options) { o.Memory = intake.MinMemory - 1 },
			"memory: is",
		},
		"much memory": {
			func(o *options) { o.Memory = intake.MaxSubmission + 1 },
			"memory: is",
		},
		"empty record":   {func(o *options) { o.MaxRecord = 0 }, "max_record: is 0B"},
		"longest record": {func(o *options) { o.MaxRecord = maxBody }, ""},
		"longer record": {
			func(o *options) { o.MaxRecord = maxBody + 1 },
			"1B to max_body",
		},
		"buffer": {
			func(o *options) { o.Ack, o.Buffer.Bytes = buffer.Buffered, 1 },
			"buffer",
		},
		"certificate": {
			func(o *options) { o.TLS.Key = "k" },
			"tls.cert: is missing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := serverOptions()
			c.change(o)
			checkError(t, o.Check("max_body", maxBody), c.want)
		})
	}
	for size, want := range map[stream.Size]string{
		0: "max_body: is 0B", 1 << 10: "", intake.MinMemory / 2: "",
		intake.MinMemory/2 + 1: "max_body: is",
	} {
		checkError(t, serverOptions().Check("max_body", size), want)
	}
}

// TestExclusive checks which options two sources of one config cannot both have.
func TestExclusive(t *testing.T) {
	for _, c := range []struct{ network, address, want string }{
		{"tcp", "127.0.0.1:514", "tcp port 514"},
		{"udp", ":514", "udp port 514"},
		{"tcp", "127.0.0.1:0", ""}, // the system chooses
		{"tcp", "wrong", ""},       // Check returns an error
		{"unix", "/run/s", "socket /run/s"},
		{"unixgram", "/run/s", "socket /run/s"},
	} {
		o := &push.SocketOptions{Network: c.network, Listen: c.address}
		if got := strings.Join(o.Exclusive(), " "); got != c.want {
			t.Errorf("Exclusive of %s %s = %q, want %q", c.network, c.address, got, c.want)
		}
	}
	o := &push.ServerOptions{Listen: "127.0.0.1:8080"}
	if got := strings.Join(o.Exclusive(), " "); got != "tcp port 8080" {
		t.Errorf("Exclusive of a server = %q", got)
	}
}
