package http

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

	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/stream"
)

const (
	headerKey       = "Idempotency-Key"
	headerSpans     = "Penstock-Spans"
	headerSpanCount = "Penstock-Span-Count"

	// maxSpans is how long Penstock-Spans may be, in bytes: servers refuse long headers. Where it
	// would be longer, only their number is sent; the key names the spans all the same.
	maxSpans = 4 << 10

	maxAnswer     = 64 << 10               // bytes of an answer that are read; a connection with more to come is closed
	maxBulkAnswer = 32 << 20               // of the answer to a bulk, which has a few hundred bytes a record at most
	maxQuoted     = 200                    // bytes of an answer that an error quotes
	bodyPatience  = 100 * time.Millisecond // how long after the answer the transport may go on sending, to keep the connection
	stallPatience = 2 * time.Second        // how long a request may make no progress after the response that may acknowledge it
	idlePatience  = 90 * time.Second       // how long an unused connection is kept
	writeBuffer   = 4 << 10                // bytes of a connection's buffer in this process: for the head, the body goes by it
	keepAliveProb = 15 * time.Second       // between probes of an idle connection
)

// lane is one endpoint.
type lane struct {
	sink     *Sink
	endpoint endpoint
	headers  nethttp.Header // of every request
	advert   *advert

	mu        sync.Mutex // guards the fields below
	transport *nethttp.Transport
	trusted   *tls.Config // with which transport was made
}

func newLane(s *Sink, e endpoint) *lane {
	l := &lane{sink: s, endpoint: e, advert: newAdvert(), headers: make(nethttp.Header)}
	l.headers.Set("User-Agent", "penstock")
	l.headers.Set("Content-Type", contentTypes[s.o.Body])
	if s.o.Compress == Gzip {
		l.headers.Set("Content-Encoding", "gzip")
	}
	if e.auth != "" {
		l.headers.Set("Authorization", e.auth)
	}
	for name, value := range s.o.Headers {
		l.headers.Set(name, value)
	}
	return l
}

// Deliver implements stream.Worker: one request, and the meaning of its answer.
func (l *lane) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	if b.Kept() == 0 {
		return stream.Report{}, nil // nothing to say, and a body of nothing may be refused
	}
	scratch := l.sink.scratch.Get().(*[]byte)
	defer l.sink.scratch.Put(scratch)
	data, err := l.sink.bodyOf(b, scratch)
	if err != nil {
		return stream.Report{}, fmt.Errorf("%s: encode: %w", l.endpoint.name, err)
	}
	key := ""
	if l.sink.o.keyed() {
		if key, err = l.sink.keyOf(b); err != nil {
			return stream.Report{}, err
		}
	}
	res, err := l.send(ctx, b, data, key)
	if err != nil {
		return stream.Report{}, fmt.Errorf("%s %s: %w", l.sink.o.Method, l.endpoint.name, err)
	}
	return res.report, l.meaning(b, res)
}

// answer is what came back.
type answer struct {
	status     int
	retryAfter string
	report     stream.Report
	code       int    // ClickHouse's exception; 0: none
	text       []byte // its beginning; of a bulk's, all of it
	cut        error  // why its body did not come to its end
	unsent     error  // why the request was not written completely, if the response may acknowledge the batch
}

// send makes one request, with the idempotency key, if any. When it returns, nothing reads data any
// more.
func (l *lane) send(ctx context.Context, b *stream.Batch, data []byte, key string) (out answer, err error) {
	req := &nethttp.Request{
		Method: l.sink.o.Method, URL: l.target(key), Host: l.endpoint.target.Host, Header: l.headers.Clone(),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(data)),
	}
	if auth := l.sink.token.get(); auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if key != "" {
		l.identify(req.Header, b, key)
	}
	l.advert.ask(req.Header)
	l.sink.host.Count("requests", 1)
	begun := time.Now()
	out, err = l.roundTrip(ctx, req, data, begun)
	if err != nil {
		return answer{}, faultOf(ctx, err)
	}
	l.sink.host.Count("bytes_sent", int64(len(data)))
	return out, nil
}

// read takes what is wanted out of an answer.
func (l *lane) read(res *nethttp.Response, begun time.Time) answer {
	out := answer{status: res.StatusCode, retryAfter: res.Header.Get("Retry-After")}
	out.report = l.advert.read(res.Header, time.Since(begun))
	out.code, _ = strconv.Atoi(res.Header.Get("X-ClickHouse-Exception-Code"))
	switch {
	case res.StatusCode == nethttp.StatusSwitchingProtocols: // no response follows, and the end of the context would not end a read
	case l.bulk() && res.StatusCode/100 == 2:
		out.text, out.cut = readWhole(res.Body)
	case l.sink.o.accept != nil:
		out.text, out.cut = readAnswer(res.Body, maxAnswer)
	default:
		out.text, out.cut = readAnswer(res.Body, maxQuoted+1)
	}
	return out
}

func (l *lane) bulk() bool { return l.sink.o.Body == ElasticsearchBulk }

// target is the URL of a request: ClickHouse tells repetitions by a token in the query.
func (l *lane) target(key string) *url.URL {
	if l.sink.o.Body != ClickHouse || key == "" {
		return l.endpoint.target
	}
	u := *l.endpoint.target
	u.RawQuery += "&insert_deduplication_token=" + url.QueryEscape(key)
	return &u
}

// identify names the batch, so that a receiver can tell a repetition.
func (l *lane) identify(h nethttp.Header, b *stream.Batch, key string) {
	h.Set(headerKey, key)
	if spans := b.AppendSpans(nil); len(spans) <= maxSpans {
		h.Set(headerSpans, string(spans))
	} else {
		h.Set(headerSpanCount, strconv.Itoa(len(b.Spans)))
	}
}

// faultOf says what a request without an answer means: a certificate or protocol that does not fit
// is the endpoint's fault and will not pass by itself; all else may.
func faultOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, noTLS := errors.AsType[tls.RecordHeaderError](err)
	op, alert := errors.AsType[*net.OpError](err) // crypto/tls tells so of an alert: it wants another certificate, or none of ours
	if untrusted || noTLS || alert && op.Op == "remote error" {
		return &stream.Misconfigured{Err: err}
	}
	return err
}

// readAnswer reads an answer to its end, or to its bound, and returns at most so many bytes of its
// beginning.
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

// readWhole reads the answer to a bulk, which says something of each record.
func readWhole(r io.Reader) (text []byte, cut error) {
	text, cut = io.ReadAll(io.LimitReader(r, maxBulkAnswer+1))
	if cut == nil && len(text) > maxBulkAnswer {
		cut = fmt.Errorf("it is longer than %v", stream.Size(maxBulkAnswer))
	}
	return text, cut
}

// meaning turns an answer into the outcome of the attempt.
func (l *lane) meaning(b *stream.Batch, res answer) error {
	v := judge(res.status, l.sink.o.keyed(), res.retryAfter, time.Now())
	if l.sink.o.Body == ClickHouse {
		v = judgeException(v, res.code, res.text)
	}
	where := l.sink.o.Method + " " + l.endpoint.name
	status := StatusError{Method: l.sink.o.Method, Endpoint: l.endpoint.name, Status: res.status, Answer: res.text}
	if l.sink.o.accept != nil && res.cut == nil {
		accepted, err := judgeAcceptance(l.sink.o.accept, res.status, res.text)
		if v = v.after2xx(accepted); v.outcome == control.Retryable {
			return &NotAcceptedError{StatusError: status, Condition: string(l.sink.o.Accept), Err: err}
		}
	}
	if v.outcome == control.Delivered {
		switch {
		case res.unsent != nil:
			return fmt.Errorf("%s: %w", where, unsentError(res.status, res.unsent))
		case res.cut != nil:
			return fmt.Errorf("%s: the answer, status %d, broke off: %w", where, res.status, res.cut)
		case !l.bulk():
			return nil
		}
		e := &l.sink.o.Elasticsearch
		fates, err := bulkFates(res.text, b.Kept(), e.Action == actionCreate && e.ID == idRecord)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		return settle(b, fates, where)
	}
	if res.status == 401 || res.status == 403 {
		if err := l.sink.token.read(); err != nil {
			l.sink.host.Log().Warn("the token was refused, and its file cannot be read again", "worker", l.endpoint.name, "error", err)
		}
	}
	err := error(&status)
	switch v.outcome {
	case control.Throttled:
		return &stream.Throttled{After: v.after, Err: err}
	case control.Rejected:
		return &stream.Rejected{Err: err}
	case control.Misconfigured:
		return &stream.Misconfigured{Err: err}
	}
	return err
}

// StatusError is an answer that says no.
type StatusError struct {
	Method, Endpoint string // the endpoint without user, password and query
	Status           int
	Answer           []byte // its beginning, or all of it, as it came
}

// Error gives the status and the first 200 bytes of the answer, control bytes escaped.
func (e *StatusError) Error() string {
	reason, detail := e.Group()
	if detail == "" {
		return reason
	}
	return reason + ": " + detail
}

// Group implements stream.Grouped: the answer may name the record, or a place in it.
func (e *StatusError) Group() (reason, detail string) {
	reason = fmt.Sprintf("%s %s: %d %s", e.Method, e.Endpoint, e.Status, nethttp.StatusText(e.Status))
	text, more := e.Answer, ""
	if len(text) > maxQuoted {
		text, more = text[:maxQuoted], "..."
	}
	if len(text) == 0 {
		return reason, ""
	}
	return reason, fmt.Sprintf("%q%s", text, more)
}
