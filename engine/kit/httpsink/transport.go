package httpsink

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	nethttp "net/http"
	"net/http/httptrace"
	"time"
)

// current returns the transport for the lane's requests. If the file of tls.ca has changed, or the
// transport is older than the option `connection_age`, current first replaces the transport. The
// connections of the old transport close after their requests have ended.
func (l *lane) current() *nethttp.Transport {
	trusted := l.sink.trust.Current()
	l.mu.Lock()
	defer l.mu.Unlock()
	age := l.sink.o.ConnectionAge
	if l.trusted != trusted || age > 0 && time.Since(l.made) > age {
		if l.transport != nil {
			l.transport.CloseIdleConnections()
		}
		l.transport, l.trusted, l.made = newTransport(l.sink, &l.endpoint, trusted.Clone()),
			trusted, time.Now()
	}
	return l.transport
}

func newTransport(s *Sink, e *endpoint, secure *tls.Config) *nethttp.Transport {
	proxy := s.proxy
	if e.address != "" {
		proxy = nil // the address was looked up here
	}
	dialer := net.Dialer{Timeout: s.o.ConnectTimeout, KeepAlive: keepAliveProb}
	return &nethttp.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if e.address != "" {
				address = e.address
			}
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		},
		TLSClientConfig:     secure,
		Proxy:               proxy,
		TLSHandshakeTimeout: s.o.ConnectTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2: &nethttp.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		},
		// the size limit of a response applies to the bytes as received
		DisableCompression:     true,
		MaxConnsPerHost:        inFlight,
		MaxIdleConnsPerHost:    inFlight,
		IdleConnTimeout:        idlePatience,
		MaxResponseHeaderBytes: maxAnswer,
		WriteBufferSize:        writeBuffer,
	}
}

// roundTrip makes a request with net/http. net/http may return a response while the request is
// still being written, or after a failed write. If the response may acknowledge the batch,
// roundTrip therefore waits until the request is written, and records a failure in answer.unsent.
func (l *lane) roundTrip(ctx context.Context, req *nethttp.Request, data []byte,
	begun time.Time) (*answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body := newBody(data)
	defer body.release(cancel)
	if req.Body = body; len(data) == 0 {
		_ = body.Close()
		req.Body = nethttp.NoBody
	}
	trace := &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) {
		body.recordSent(i.Err)
	}}
	res, err := l.current().RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		out := l.read(res, begun)
		if l.mayAcknowledge(res.StatusCode) {
			out.unsent = body.awaitSent(ctx)
		}
		return out, nil
	}
	// With HTTP/2, wait until the request is written before reading the response. A read could not
	// be interrupted: while the request waits for flow control, the end of ctx would not end the
	// read.
	unsent := body.awaitSent(ctx)
	if unsent == errStalled || unsent != nil && ctx.Err() != nil {
		return nil, unsentError(res.StatusCode, unsent)
	}
	out := l.read(res, begun)
	out.unsent = unsent
	return out, nil
}

// unsentError returns the error for a request that got a response with the given status before it
// was written completely.
func unsentError(status int, cause error) error {
	return fmt.Errorf(
		"status %d is ignored, because the request was not written completely: %w", status,
		cause)
}

// mayAcknowledge reports whether a response of this status may mean that the batch was delivered.
func (l *lane) mayAcknowledge(status int) bool {
	return l.sink.format.AnyStatus || status/100 == 2
}
