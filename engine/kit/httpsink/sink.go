// Package httpsink is the common part of sinks that deliver over HTTP: endpoints, authentication,
// TLS, connections, compression, and the outcome of a response by its status. A [Codec] adds the
// part for one kind of receiver: path, content type and body of a request, and the meaning of a
// response.
//
// A batch is one request. A worker is an endpoint with a URL, or one address of an endpoint that is
// a name. If the format has an idempotency key, each request contains the key of its batch. The key
// is usually the same after a crash, so that a receiver can detect that it gets a batch a second
// time.
//
// The sink uses net/http with connections of its own. It follows no redirects. It does not repeat
// requests, because package flow decides on retries. It never shows the password or query of an
// endpoint.
package httpsink

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	nethttp "net/http"
	"net/url"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/stream"
)

// inFlight bounds the concurrent requests and connections of one endpoint, even if the window of
// the endpoint (the adaptive limit on its in-flight batches) is larger.
const inFlight = 256

// Sink sends batches to endpoints. It implements stream.Sink and stream.Encoder.
type Sink struct {
	o         Options
	codec     Codec
	format    Format
	host      stream.Host
	endpoints []endpoint
	names     []discovered // endpoints that are found by discovery
	lanes     lanes
	token     *httpaccess.Token
	trust     *httpaccess.Trust
	proxy     func(*nethttp.Request) (*url.URL, error) // nil: none
	route     string                                   // pipeline and route; set by Open
	zips      sync.Pool                                // *gzip.Writer
	// *[]byte: memory for the bodies of pieces of batches, and for bodies before compression
	scratch sync.Pool
}

// New returns a sink that has opened no connection.
func New(o Options, c Codec, h stream.Host) (*Sink, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	f := c.Format()
	f.Method = cmp.Or(f.Method, nethttp.MethodPost)
	endpoints, err := o.endpoints(f)
	if err != nil {
		return nil, err
	}
	s := &Sink{
		o: o, codec: c, format: f, host: h, endpoints: endpoints, names: o.discovered(f),
	}
	s.scratch.New = func() any { return new([]byte) }
	s.zips.New = func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // errs for an unknown level only
		return z
	}
	for _, counter := range []string{
		"requests", "bytes_sent", "workers_drained", "lookups", "lookups_failed",
	} {
		h.Count(counter, 0)
	}
	return s, nil
}

// Open implements stream.Sink. It creates one lane for each endpoint, named by the URL without
// user, password and query. It looks up the names of the options `dns`, `srv` and `nats`, and later
// repeats the lookup at intervals. Each address that it finds gets a lane. Open does not connect to
// endpoints, so it succeeds even if they are down.
//
// Open reads the files with certificates and the token.
func (s *Sink) Open(ctx context.Context, o stream.SinkOptions) error {
	if err := s.access(); err != nil {
		return err
	}
	s.route = o.Pipeline + "/" + o.Route
	s.lanes.open(s, o.Lanes)
	for i := range s.names {
		s.lanes.look(ctx, &s.names[i])
	}
	s.lanes.publish(time.Now())
	s.host.Go("http lanes", s.lanes.run)
	return nil
}

// access reads the files with certificates and the token, and the settings of the proxy.
func (s *Sink) access() (err error) {
	if s.trust, err = httpaccess.NewTrust(&s.o.TLS, s.host.Log()); err != nil {
		return err
	}
	if s.proxy, err = httpaccess.Proxy(s.o.Proxy); err != nil {
		return err
	}
	s.token, err = httpaccess.NewToken(s.o.Basic, s.o.Bearer, s.o.BearerFile)
	return err
}

// Close implements stream.Sink.
func (s *Sink) Close() error {
	s.lanes.close()
	return nil
}

// Encode implements stream.Encoder. It appends the request's body to dst. It appends nothing if the
// format is raw, compression is off and the batch is unchanged: then the batch's own bytes are
// sent. Records that cannot be encoded are dead-lettered.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	return s.encode(dst, b, b.DeadLetter)
}

func (s *Sink) encode(dst []byte, b *stream.Batch, refuse func(int, error)) ([]byte, error) {
	if s.format.KeyReadsRecords {
		b.Split() // for Deliver, which only reads
	}
	whole, ok := b.Whole()
	ok = ok && s.format.Raw
	if s.o.Compress == None {
		if ok {
			return nil, nil
		}
		return s.codec.Append(dst, b, refuse), nil
	}
	scratch := s.scratch.Get().(*[]byte)
	defer s.scratch.Put(scratch)
	if !ok {
		*scratch = s.codec.Append((*scratch)[:0], b, refuse)
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
	if s.format.Raw && s.o.Compress == None && !s.format.KeyReadsRecords {
		return stream.EncodeChanged
	}
	return stream.EncodeAll
}

// keyOf returns the idempotency key of a request for b, or "" if requests have no keys.
func (s *Sink) keyOf(b *stream.Batch) (string, error) {
	switch {
	case !s.format.Keyed:
		return "", nil
	case s.format.Key != nil:
		return s.format.Key(b)
	}
	sum := sha256.Sum256([]byte(s.route + " " + b.ID()))
	return hex.EncodeToString(sum[:16]), nil
}

// bodyOf returns the body of a request for b. This is the payload from Encode, or the batch's own
// bytes. If b is a piece, with only some records of a batch, it has no payload, and bodyOf encodes
// it into scratch.
func (s *Sink) bodyOf(b *stream.Batch, scratch *[]byte) ([]byte, error) {
	if len(b.Payload) > 0 {
		return b.Payload, nil
	}
	var refused error
	body, err := s.encode((*scratch)[:0], b, func(_ int, reason error) {
		refused = &stream.Rejected{Err: reason}
	})
	if err = cmp.Or(refused, err); err != nil {
		return nil, err
	}
	if body == nil {
		body, _ = b.Whole()
		return body, nil
	}
	*scratch = body
	return body, nil
}
