// Package http holds the sink that sends batches as HTTP requests, each endpoint a worker: to
// receivers of JSON lines, arrays or plain records, and to stores with a form of their own
// (Elasticsearch, Loki, ClickHouse).
//
// A batch is one request; what its answer means is decided in outcome.go, and for each record of a
// bulk in bulk.go. With idempotency_key every request names its batch, the same after a crash, so
// that a receiver can tell a repetition. The sink owns its connections, which are net/http's. It
// follows no redirect, repeats no request (flow decides when to try again), and shows no password
// and no query of an endpoint to anybody.
package http

import (
	"bytes"
	"context"
	nethttp "net/http"
	"net/url"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// inFlight bounds the requests and connections of one endpoint; its window stays below it.
const inFlight = 256

// Component is the sink's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "http",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// Sink sends batches to endpoints. It implements stream.Sink and stream.Encoder.
type Sink struct {
	o         Options
	host      stream.Host
	endpoints []endpoint
	lanes     []*lane
	token     *token
	trust     *trust
	proxy     func(*nethttp.Request) (*url.URL, error) // nil: none
	zips      sync.Pool                                // *gzip.Writer
	scratch   sync.Pool                                // *[]byte: bodies of pieces, and what is to be compressed
	keys      sync.Pool                                // *expr.Evaluator of idempotency_key
}

// New returns a sink that has opened no connection.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	endpoints, err := o.endpoints()
	if err != nil {
		return nil, err
	}
	if o.key == nil { // not from a config: records may have any fields
		if _, err := o.Shape(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	s := &Sink{o: o, host: h, endpoints: endpoints}
	s.keys.New = func() any { return expr.NewEvaluator(s.o.key) }
	s.scratch.New = func() any { return new([]byte) }
	s.zips.New = func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // errs for an unknown level only
		return z
	}
	return s, nil
}

// Open implements stream.Sink: one lane for each endpoint, named by its URL without user, password
// and query. It connects to none: an endpoint that is down now is a worker that is down.
//
// It reads the files of certificates and token.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) error {
	var err error
	if s.trust, err = newTrust(&s.o.TLS, s.host.Log()); err != nil {
		return err
	}
	if s.proxy, err = s.o.proxy(); err != nil {
		return err
	}
	if s.token, err = newToken(&s.o); err != nil {
		return err
	}
	var all []stream.Lane
	for _, e := range s.endpoints {
		l := newLane(s, e)
		s.lanes = append(s.lanes, l)
		all = append(all, stream.Lane{Name: e.name, Worker: l, Limits: stream.Limits{InFlight: inFlight}})
	}
	o.Lanes(all)
	return nil
}

// Close implements stream.Sink.
func (s *Sink) Close() error {
	for _, l := range s.lanes {
		l.current().CloseIdleConnections()
	}
	s.lanes = nil
	return nil
}

// Encode implements stream.Encoder: the request's body. A raw batch of which nothing was changed is
// sent from its own bytes, if it is not compressed.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	if s.o.key != nil {
		b.Split() // for Deliver, which only reads
	}
	whole, ok := b.Whole()
	ok = ok && s.o.Body == Raw
	if s.o.Compress == None {
		if ok {
			return nil, nil
		}
		return s.plain(dst, b), nil
	}
	scratch := s.scratch.Get().(*[]byte)
	defer s.scratch.Put(scratch)
	if !ok {
		*scratch = s.plain((*scratch)[:0], b)
		whole = *scratch
	}
	out := bytes.NewBuffer(dst)
	z := s.zips.Get().(*gzip.Writer)
	defer s.zips.Put(z)
	z.Reset(out)
	if _, err := z.Write(whole); err != nil {
		return nil, err
	}
	err := z.Close()
	return out.Bytes(), err
}

// Encodes implements stream.Encoder.
func (s *Sink) Encodes() stream.Encoding {
	if s.o.Body == Raw && s.o.Compress == None && s.o.key == nil {
		return stream.EncodeChanged
	}
	return stream.EncodeAll
}

func (s *Sink) plain(dst []byte, b *stream.Batch) []byte { return s.o.appendBody(dst, b, time.Now()) }

// bodyOf returns the body of a request for b: its payload, its own bytes, or, for a piece, what is
// encoded into scratch.
func (s *Sink) bodyOf(b *stream.Batch, scratch *[]byte) ([]byte, error) {
	if len(b.Payload) > 0 {
		return b.Payload, nil
	}
	body, err := s.Encode((*scratch)[:0], b)
	if body == nil && err == nil {
		body, _ = b.Whole()
		return body, nil
	}
	*scratch = body
	return body, err
}
