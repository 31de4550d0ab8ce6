// Package egress restricts requests to URLs that come from data. Without it, a record could make
// penstock send requests into penstock's own network (server-side request forgery, SSRF).
//
// A [Policy] decides which URLs and addresses are allowed. It does no I/O. A [Dialer] resolves a
// name, checks each address, and then connects to the checked address. So the check also holds if
// the name resolves to another address later (DNS rebinding). A transport of [NewTransport] uses a
// Dialer and no proxy. Clients must not follow redirects, because a Dialer does not check URLs.
package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Dialer connects only to addresses that its policy allows. If Resolver is nil, it uses
// the system's resolver.
type Dialer struct {
	Policy   *Policy
	Timeout  time.Duration // of a connection
	Resolver *net.Resolver

	allowed func(netip.AddrPort) error // for tests: called with each address that the policy allows
}

// DialContext connects to host:port. If the name resolves to several addresses, it tries the
// allowed ones. If it cannot connect because an address is not allowed, the error wraps a
// *[RefusedError].
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, fmt.Errorf("network %s is not allowed", network)
	}
	dialer := net.Dialer{Timeout: d.Timeout, KeepAlive: 30 * time.Second, Resolver: d.Resolver}
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return d.check(address)
	}
	return dialer.DialContext(ctx, network, address)
}

func (d *Dialer) check(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &RefusedError{address, "it is not an address"}
	}
	if err := d.Policy.CheckAddress(to.Addr()); err != nil {
		return err
	}
	if d.allowed != nil {
		return d.allowed(to)
	}
	return nil
}

// TransportOptions are the options of a transport.
type TransportOptions struct {
	TLS             *tls.Config
	IdleConnections int   // total; the least recently used is closed first; zero means 1000
	HeaderBytes     int64 // size of a response's header; zero means 64 KiB
}

// An HTTP/2 connection without received frames for the time silence is tested with a ping, and is
// closed if there is no reply within pingTimeout. Otherwise further requests would use a connection
// to a receiver that has vanished, until the operating system closes it many minutes later.
const (
	silence     = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// idleTimeout is the time after which an unused connection is closed.
const idleTimeout = 90 * time.Second

// NewTransport returns a transport that connects with d.
func NewTransport(d *Dialer, o TransportOptions) *http.Transport {
	if o.IdleConnections <= 0 {
		o.IdleConnections = 1000
	}
	if o.HeaderBytes <= 0 {
		o.HeaderBytes = 64 << 10
	}
	return &http.Transport{
		HTTP2:       &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: pingTimeout},
		DialContext: d.DialContext, TLSClientConfig: o.TLS, TLSHandshakeTimeout: d.Timeout, ForceAttemptHTTP2: true,
		MaxIdleConns: o.IdleConnections, MaxIdleConnsPerHost: 8, IdleConnTimeout: idleTimeout,
		MaxResponseHeaderBytes: o.HeaderBytes,
		DisableCompression:     true,
	}
}
