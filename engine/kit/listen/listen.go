// Package listen has the common parts of sources with a listening socket: receivers of datagrams
// and of streams, checks of the address, TLS with certificates that can be replaced at runtime,
// tokens, and a limit on connections.
package listen

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/penstock-io/penstock/stream"
)

// CheckAddress checks address, the HOST:PORT of the option `listen`. If the source is not protected
// and the host is not loopback, it returns an error. The error contains remedy, which names the
// options that protect the source.
func CheckAddress(address string, protected bool, remedy string) error {
	if address == "" {
		return stream.OptionErrorf("listen", "is missing: write HOST:PORT, such as 127.0.0.1:8080")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return stream.OptionErrorf("listen", "%q is not HOST:PORT, such as 127.0.0.1:8080", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return stream.OptionErrorf("listen", "%q is not a port; write a number from 0 to 65535",
			port)
	}
	ip := net.ParseIP(host)
	switch {
	case host != "" && ip == nil && host != "localhost":
		return stream.OptionErrorf("listen", "%q is not an IP address; a name could later "+
			"resolve to another machine", host)
	case !protected && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return stream.OptionErrorf("listen", "%s can be reached from other machines; %s, or "+
			"listen on 127.0.0.1", address, remedy)
	}
	return nil
}

// Exclusive returns the port of the address in the form for stream.ExclusiveUser, so that two
// components of a config cannot use the same port. It returns nil for the path of a Unix socket,
// and if the system chooses the port.
func Exclusive(network, address string) []string {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return nil
	}
	return []string{fmt.Sprintf("%s port %s", network, port)}
}

// MaxConnections is the maximum of an option `connections`.
const MaxConnections = 100_000

// CheckConnections checks the value of an option `connections`.
func CheckConnections(n int) error {
	return stream.CheckRange("connections", n, 1, MaxConnections)
}

// ErrOnce means that a source with a listening socket was started in a finite run (--once).
var ErrOnce = errors.New("a listener never ends: run it without --once")

// CheckSocket checks the options `listen`, `tls` and `insecure` of a source with a socket.
func CheckSocket(network, address string, t *TLS, insecure bool) error {
	if network != "tcp" && *t != (TLS{}) {
		return stream.OptionErrorf("tls", "needs network tcp, but this is %s", network)
	}
	switch network {
	case "unix", "unixgram":
		if address == "" || len(address) > maxSocketPath || address[0] != '/' {
			return stream.OptionErrorf("listen", "is %q, want an absolute path of at most %d bytes",
				address, maxSocketPath)
		}
		return nil
	case "udp":
		return CheckAddress(address, insecure, "set insecure: true, because UDP has no tokens")
	}
	remedy := "set tls.cert, tls.key and tls.client_ca, or insecure: true"
	return errors.Join(CheckAddress(address, insecure || t.On() && t.ClientCA != "", remedy),
		t.Check())
}

// maxSocketPath is the maximum length of a socket's path. All supported systems allow this length.
const maxSocketPath = 100
