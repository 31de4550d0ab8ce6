package httpsink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-io/penstock/stream"
)

const (
	headerKey       = "Idempotency-Key"
	headerSpans     = "Penstock-Spans"
	headerSpanCount = "Penstock-Span-Count"

	// maxSpans is the maximum size of the header Penstock-Spans in bytes. Servers refuse long
	// headers. If the list of spans is longer, only Penstock-Span-Count is sent, and the
	// idempotency key still identifies the batch.
	maxSpans = 4 << 10

	// bytes of a response that are read, unless Format.WholeResponse is set; with HTTP/1, a
	// connection with a longer response is closed
	maxAnswer = 64 << 10
	maxQuoted = 200 // bytes of a response that an error quotes
	// bodyPatience is the maximum time for which release waits until net/http has sent the rest of
	// the request. Only then can the connection be used again.
	bodyPatience = 100 * time.Millisecond
	// stallPatience is for a response that arrives before its request was written completely. While
	// the sink waits for the rest of the request, it gives up if the body makes no progress for
	// stallPatience.
	stallPatience = 2 * time.Second
	idlePatience  = 90 * time.Second // how long an unused connection is kept
	// size of a connection's write buffer in this process: only the header is buffered
	writeBuffer   = 4 << 10
	keepAliveProb = 15 * time.Second // between probes of an idle connection
	// An HTTP/2 connection without received frames for pingAfter is tested with a ping, and is
	// closed if there is no reply within pingTimeout. Otherwise further requests would use a
	// connection to a receiver that has vanished.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// lane is the worker of one endpoint. It sends each batch as one request.
type lane struct {
	sink     *Sink
	endpoint endpoint
	from     *discovered    // the name of which this is an address; nil for a URL
	headers  nethttp.Header // of every request
	advert   *advert

	mu        sync.Mutex // guards the fields below
	transport *nethttp.Transport
	trusted   *tls.Config // the configuration of transport
	made      time.Time   // creation time of transport
}

func newLane(s *Sink, e endpoint) *lane {
	l := &lane{sink: s, endpoint: e, advert: newAdvert(), headers: make(nethttp.Header)}
	l.headers.Set("User-Agent", "penstock")
	l.headers.Set("Content-Type", s.format.ContentType)
	if s.o.Compress == Gzip {
		l.headers.Set("Content-Encoding", "gzip")
	}
	if e.auth != "" {
		l.headers.Set("Authorization", e.auth)
	}
	for name, value := range s.format.Header {
		l.headers.Set(name, value)
	}
	for name, value := range s.o.Headers {
		l.headers.Set(name, value)
	}
	return l
}

// Deliver implements stream.Worker. It sends one request and returns the outcome of the response.
func (l *lane) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	if b.Kept() == 0 {
		return stream.Report{}, nil // nothing to send, and receivers may refuse an empty body
	}
	scratch := l.sink.scratch.Get().(*[]byte)
	defer l.sink.scratch.Put(scratch)
	data, err := l.sink.bodyOf(b, scratch)
	if err != nil {
		return stream.Report{}, fmt.Errorf("%s: encode: %w", l.endpoint.name, err)
	}
	key, err := l.sink.keyOf(b)
	if err != nil {
		return stream.Report{}, err
	}
	res, err := l.send(ctx, b, data, key)
	if err != nil {
		return stream.Report{}, fmt.Errorf("%s %s: %w", l.sink.format.Method, l.endpoint.name, err)
	}
	return res.report, l.outcome(b, res)
}

// answer is a response with its report and the state of its request.
type answer struct {
	Response
	report stream.Report
	// unsent is the reason why the request was not written completely, or nil if it was. If the
	// status of a response says that the batch was not delivered, the reason does not matter. With
	// HTTP/1, unsent is then always nil.
	unsent error
}

// send makes one request, with an idempotency key unless key is empty. After send has returned, no
// goroutine reads the slice data any more.
func (l *lane) send(ctx context.Context, b *stream.Batch, data []byte,
	key string) (*answer, error) {
	req := &nethttp.Request{
		Method: l.sink.format.Method, URL: l.target(key), Host: l.endpoint.target.Host,
		Header: l.headers.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(data)),
	}
	if auth := l.sink.token.Header(); auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if key != "" {
		l.identify(req.Header, b, key)
	}
	l.advert.setHeader(req.Header, b.Kept())
	l.sink.host.Count("requests", 1)
	begun := time.Now()
	out, err := l.roundTrip(ctx, req, data, begun)
	if err != nil {
		return nil, faultOf(ctx, err)
	}
	l.sink.host.Count("bytes_sent", int64(len(data)))
	return out, nil
}

// read reads as much of the response's body as the format needs.
func (l *lane) read(res *nethttp.Response, begun time.Time) *answer {
	f := &l.sink.format
	out := &answer{Response: Response{
		Method: f.Method, Endpoint: l.endpoint.name, Status: res.StatusCode, Header: res.Header,
	}}
	out.report = l.advert.read(res.Header, time.Since(begun))
	if out.report.Draining {
		l.sink.lanes.drain(l)
	}
	switch {
	case res.StatusCode == nethttp.StatusSwitchingProtocols:
		// no response follows this one, and the end of the context would not end a read of its body
	case f.WholeResponse > 0 && res.StatusCode/100 == 2:
		out.Body, out.Cut = readWhole(res.Body, f.WholeResponse)
	case f.AnyStatus:
		out.Body, out.Cut = readAnswer(res.Body, maxAnswer)
	default:
		out.Body, out.Cut = readAnswer(res.Body, maxQuoted+1)
	}
	return out
}

// target returns the URL of a request. If the format has a query parameter for the idempotency key,
// target adds it with the value key.
func (l *lane) target(key string) *url.URL {
	parameter := l.sink.format.KeyParameter
	if parameter == "" || key == "" {
		return l.endpoint.target
	}
	u := *l.endpoint.target
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += parameter + "=" + url.QueryEscape(key)
	return &u
}

// identify adds the headers that identify the batch, so that a receiver can detect that it gets the
// batch a second time.
func (l *lane) identify(h nethttp.Header, b *stream.Batch, key string) {
	h.Set(headerKey, key)
	if spans := b.AppendSpans(nil); len(spans) <= maxSpans {
		h.Set(headerSpans, string(spans))
	} else {
		h.Set(headerSpanCount, strconv.Itoa(len(b.Spans)))
	}
}

// faultOf classifies the error of a request without a response. If ctx has ended, the result is its
// cause. An invalid certificate, a server without TLS and a TLS alert of the server are permanent
// faults of the endpoint. Any other error may be temporary.
func faultOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	// crypto/tls reports an alert of the server as a net.OpError with the Op "remote error".
	// Usually the server wants a client certificate, or another one.
	op, alert := errors.AsType[*net.OpError](err)
	if untrusted || noTLS || alert && op.Op == "remote error" {
		return &stream.Misconfigured{Err: err}
	}
	return err
}

// readAnswer reads a response, at most maxAnswer bytes of it. It returns only the first bytes,
// as many as the parameter most allows. cut is the error that ended the response early.
func readAnswer(r io.Reader, most int) (text []byte, cut error) {
	text, cut = io.ReadAll(io.LimitReader(r, int64(most)))
	if cut != nil || len(text) < most {
		return text, cut
	}
	_, cut = io.CopyN(io.Discard, r, maxAnswer-int64(len(text)))
	if cut == io.EOF {
		cut = nil
	}
	return text, cut
}

// readWhole reads a response completely. If it has more than limit bytes, cut is an error.
func readWhole(r io.Reader, limit int) (text []byte, cut error) {
	text, cut = io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if cut == nil && len(text) > limit {
		cut = fmt.Errorf("it is longer than %v", stream.Size(limit))
	}
	return text, cut
}

// outcome returns the outcome of a delivery attempt from its response. If some or all records were
// delivered, but the request or the response is incomplete, outcome returns an error instead.
func (l *lane) outcome(b *stream.Batch, a *answer) error {
	r := &a.Response
	r.Err = statusOutcome(r, l.sink.format.Keyed)
	err := l.sink.codec.Outcome(b, r)
	if _, part := errors.AsType[*stream.Split](err); err == nil || part {
		switch {
		case a.unsent != nil:
			return fmt.Errorf("%s: %w", r.Where(), unsentError(r.Status, a.unsent))
		case r.Cut != nil:
			return fmt.Errorf("%s: the response, status %d, is incomplete: %w",
				r.Where(), r.Status, r.Cut)
		}
		return err
	}
	if r.Status == nethttp.StatusUnauthorized || r.Status == nethttp.StatusForbidden {
		if err := l.sink.token.Read(); err != nil {
			l.sink.host.Log().Warn("the token was refused, and its file cannot be read again",
				"worker", l.endpoint.name, "error", err)
		}
	}
	return err
}
