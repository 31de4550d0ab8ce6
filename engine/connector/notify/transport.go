package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/egress"
	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/engine/kit/tlsaccess"
	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

const (
	maxResponse = 64 << 10 // bytes of a response's body that are read
	maxExcerpt  = 500      // bytes of a response's body in the history
	maxDetail   = 500      // bytes of an error in the history
)

// newTransport returns a transport that checks each address before it connects to it.
func newTransport(o *Options) (*nethttp.Transport, error) {
	roots, err := o.authorities()
	if err != nil {
		return nil, fmt.Errorf("ca: %w", err)
	}
	d := &egress.Dialer{Policy: &o.Allow, Timeout: o.ConnectTimeout}
	return egress.NewTransport(d, egress.TransportOptions{
		TLS:             &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		IdleConnections: o.Idle,
		HeaderBytes:     maxResponse,
	}), nil
}

// authorities reads the certificates in the file of the option ca. It returns nil without the
// option, which means the system's authorities.
func (o *Options) authorities() (*x509.CertPool, error) {
	return (&tlsaccess.TLS{CA: o.CA}).Authorities()
}

// result is the outcome of one attempt or poll.
type result struct {
	event      parked.Event
	entry      parked.Entry
	operation  parked.Operation // set with the event Start
	retryAfter time.Duration
	host       evidence
}

// attempt makes one request: the record's own, or a poll of an operation that the receiver has
// started. It checks the URL again, because the configuration may have changed since the record was
// parked. It does not follow redirects.
func (s *Sink) attempt(ctx context.Context, d *parked.Delivery) (out result) {
	begun := time.Now()
	out.entry.At = begun
	defer func() {
		out.entry.Took = time.Since(begun)
		out.entry.Event = out.event.String()
		if len(out.entry.Detail) > maxDetail {
			out.entry.Detail = out.entry.Detail[:maxDetail] + "..."
		}
		out.entry.Detail = strings.ToValidUTF8(out.entry.Detail, "?")
	}()
	failed, made := parked.Refuse, s.request
	if d.Polled() {
		failed, made = parked.Pending, s.pollRequest
	}
	fail := func(err error) result {
		out.event, out.entry.Detail = failed, stream.MaskURLs(err.Error())
		return out
	}
	req, err := made(ctx, d)
	if err != nil {
		return fail(err)
	}
	r, err := s.exchange(ctx, req)
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		out.event, out.entry.Detail = parked.Abort, errStopping.Error()
		return out
	}
	if err != nil {
		out.host = hostDown
		return fail(err)
	}
	s.judge(d, r, &out)
	if out.entry.Status, out.host = r.status, hostUp; isDown(r.status) && out.event == failed {
		out.host = hostDown
	}
	out.entry.Body = strings.ToValidUTF8(string(r.body[:min(len(r.body), maxExcerpt)]), "?")
	if advice, ok := rate.ParseHeaders(
		map[string][]string{"Retry-After": r.header["Retry-After"]}, time.Now(),
	); ok {
		out.retryAfter = advice.RetryAfter
	}
	return out
}

// exchange sends a request, and reads the response and its body up to maxResponse bytes.
func (s *Sink) exchange(ctx context.Context, req *nethttp.Request) (*response, error) {
	res, err := s.transport.RoundTrip(req)
	if err != nil {
		return nil, cause(ctx, err)
	}
	if res.StatusCode == nethttp.StatusSwitchingProtocols {
		// the body is the connection, and the end of ctx would not end a read of it
		_ = res.Body.Close()
		return &response{status: res.StatusCode, header: res.Header}, nil
	}
	body, err := readBody(ctx, res.Body)
	if err != nil {
		return nil, fmt.Errorf("response %d: %w", res.StatusCode, cause(ctx, err))
	}
	return &response{
		res.StatusCode,
		res.Header,
		body[:min(len(body), maxResponse)],
		len(body) > maxResponse,
	}, nil
}

// readBody reads at most maxResponse+1 bytes of the body, and closes it.
//
// Over HTTP/2, the end of ctx does not end a read of the response's body while the request's body
// waits for flow control. So the body is closed when ctx ends.
func readBody(ctx context.Context, body io.ReadCloser) ([]byte, error) {
	ctx, done := context.WithCancel(ctx)
	closer := supervise.NewGroup(ctx)
	closer.Go("close body", func(ctx context.Context) error {
		<-ctx.Done()
		return body.Close()
	})
	read, err := io.ReadAll(io.LimitReader(body, maxResponse+1))
	done()
	_ = closer.Wait() // the bytes are valid even if Close fails
	return read, err
}

// judge sets the event that a response causes. If a receiver has started an operation that cannot
// be polled, judge ends the delivery: if the request were sent again, it might start the operation
// a second time.
func (s *Sink) judge(d *parked.Delivery, r *response, out *result) {
	switch {
	case d.Polled():
		verdict, text := s.o.programs.judgePoll(r)
		out.event, out.entry.Detail = eventOf(verdict), text
	case s.o.Async.isOn() && r.status == nethttp.StatusAccepted:
		operation, err := s.operation(d, r)
		if err != nil {
			out.event = parked.Stop
			out.entry.Detail = "202 Accepted, and the operation cannot be polled: " + err.Error()
			return
		}
		out.event, out.operation = parked.Start, operation
		out.entry.Detail = "202 Accepted; the operation is polled at " + stream.MaskURLs(
			operation.Location,
		)
	default:
		out.event, out.entry.Detail = s.o.programs.judge(r)
	}
}

// cause returns err without the URL, which net/http puts before the reason. For a timeout and for a
// closed connection, it returns a text of its own.
func cause(ctx context.Context, err error) error {
	if refused, ok := errors.AsType[*egress.RefusedError](err); ok {
		return refused
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("no response in time")
	}
	if errors.Is(err, io.EOF) {
		return errNoResponse
	}
	return err
}

// request returns the request of an attempt, with new signatures.
func (s *Sink) request(ctx context.Context, d *parked.Delivery) (*nethttp.Request, error) {
	u, _, err := s.o.Allow.Check(d.URL)
	if err != nil {
		return nil, err
	}
	req, err := nethttp.NewRequestWithContext(ctx, d.Method, u.String(), bytes.NewReader(d.Body))
	if err != nil {
		return nil, errors.New("the URL is malformed")
	}
	req = repeatable(req)
	req.Header.Set("User-Agent", "penstock")
	req.Header.Set("Content-Type", contentType(d.Body))
	if err := setHeaders(req.Header, d.Header); err != nil {
		return nil, err
	}
	req.Header.Set(keyHeader, d.Key)
	err = s.o.Sign.sign(req.Header, d.Key, d.Signer, d.Body, time.Now())
	if len(d.Body) == 0 {
		req.Body = nethttp.NoBody
		hideKeys(req.Header)
	}
	return req, err
}

// hideKeys changes the names of headers with keys to lower case, which means the same to receivers.
// With the usual form, net/http would repeat a request without a body that may have been processed.
// It also repeats every GET request without a body.
func hideKeys(h nethttp.Header) {
	for _, name := range []string{keyHeader, "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			h[strings.ToLower(name)] = values
			delete(h, name)
		}
	}
}

// keyHeader is the name of the header with the business key.
const keyHeader = "Idempotency-Key"

var errNoResponse = errors.New("the receiver closed the connection without a response")

// repeatable returns a request that net/http repeats only if the receiver has certainly not
// processed it. Over HTTP/2 the receiver reports this (GOAWAY, REFUSED_STREAM), for example
// whenever it ends a connection after a fixed number of requests. Over HTTP/1 it cannot, and
// net/http would also repeat requests that may have been processed.
func repeatable(req *nethttp.Request) *nethttp.Request {
	isHTTP2, body := false, req.GetBody
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) {
			c, ok := i.Conn.(*tls.Conn)
			isHTTP2 = ok && c.ConnectionState().NegotiatedProtocol == "h2"
		},
	}))
	req.GetBody = func() (io.ReadCloser, error) {
		if !isHTTP2 {
			return nil, errNoResponse
		}
		return body()
	}
	return req
}

// setHeaders sets the headers in stored, a JSON object from the store.
func setHeaders(header nethttp.Header, stored string) error {
	if stored == "" {
		return nil
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(stored), &values); err != nil {
		return errors.New("the parked headers are malformed")
	}
	for name, value := range values {
		header.Set(name, value)
	}
	return nil
}

// contentType returns the default Content-Type for a body.
func contentType(body []byte) string {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	if len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		return "application/json"
	}
	return "text/plain; charset=utf-8"
}
