// Package http implements the sink that sends batches as HTTP requests. It is for receivers of JSON
// lines, of JSON arrays or of plain records. Each endpoint is a worker.
//
// The option `body` also accepts the formats of Elasticsearch, Loki and ClickHouse. These formats
// have moved to the sinks in the packages elasticsearch, loki and clickhouse. The values remain for
// older configs.
package http

import (
	"sync"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Component returns the sink's entry in the list of components. A sink with the option audit.url
// implements [stream.AuditedSink] as well.
func Component() stream.Component {
	c := stream.NewComponent(stream.SinkRole, "http", DefaultOptions, New)
	c.New = func(o any, h stream.Host) (any, error) {
		options := *o.(*Options)
		s, err := New(options, h)
		if err != nil || options.Audit.URL == "" {
			return s, err
		}
		return &auditedSink{Sink: s, o: &options}, nil
	}
	return c
}

// New returns a sink. It does not connect.
func New(o Options, h stream.Host) (*httpsink.Sink, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.key == nil { // Shape was not called: records may have any fields
		if _, err := o.Shape(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	c, err := o.codec()
	if err != nil {
		return nil, err
	}
	return httpsink.New(o.Options, c, h)
}

// codec returns the codec that the option body selects. It encodes batches and evaluates responses.
func (o *Options) codec() (httpsink.Codec, error) {
	c := &codec{o: o}
	c.keys.New = func() any { return expr.NewEvaluator(o.key) }
	var err error
	switch o.Body {
	case ElasticsearchBulk:
		c.Codec, err = o.Elasticsearch.Codec()
	case Loki:
		c.Codec = o.Loki.Codec()
	case ClickHouse:
		c.Codec = o.ClickHouse.Codec()
	default:
		c.Codec = plain{o}
	}
	return c, err
}

// codec is the codec of a body, with support for the options idempotency_key and accept.
type codec struct {
	httpsink.Codec
	o    *Options
	keys sync.Pool // *expr.Evaluator of idempotency_key
}

// Format implements httpsink.Codec.
func (c *codec) Format() httpsink.Format {
	f := c.Codec.Format()
	f.Method, f.KeyReadsRecords, f.AnyStatus = c.o.Method, c.o.key != nil, c.o.accept != nil
	switch {
	case c.o.key != nil:
		f.Key = c.keyOf
	case c.o.IdempotencyKey == keyNone:
		f.Keyed = false
	}
	return f
}

// plain is the codec for bodies that are not specific to a store.
type plain struct{ o *Options }

// contentTypes has the content type for each value of the option body that plain supports.
var contentTypes = map[string]string{
	NDJSON: "application/x-ndjson", JSONArray: "application/json", Raw: "text/plain",
}

// Format implements httpsink.Codec.
func (p plain) Format() httpsink.Format {
	return httpsink.Format{
		ContentType: contentTypes[p.o.Body], Keyed: true, Raw: p.o.Body == Raw,
	}
}

// Append implements httpsink.Codec. It appends the kept records of b (neither dropped nor
// dead-lettered) in the format of the option body.
func (p plain) Append(dst []byte, b *stream.Batch, _ func(int, error)) []byte {
	switch p.o.Body {
	case NDJSON:
		return ndjson.Append(dst, b)
	case JSONArray:
		return appendArray(dst, b)
	}
	return b.AppendRaw(dst)
}

// Outcome implements httpsink.Codec. The outcome depends only on the status of the response.
func (p plain) Outcome(_ *stream.Batch, r *httpsink.Response) error { return r.Err }

func appendArray(dst []byte, b *stream.Batch) []byte {
	dst = append(dst, '[')
	for n, i := range b.AppendKept(nil) {
		if n > 0 {
			dst = append(dst, ',', '\n')
		}
		dst = ndjson.AppendRecord(dst, b, i)
	}
	return append(dst, ']', '\n')
}

// Notices implements stream.Noticer. It returns a notice if the option body selects the format of
// Elasticsearch, Loki or ClickHouse, which have sinks of their own.
func (o *Options) Notices() []error {
	name := o.Body
	switch o.Body {
	case ElasticsearchBulk:
		name = "elasticsearch"
	case Loki, ClickHouse:
	default:
		return nil
	}
	return []error{stream.OptionErrorf("body", "is %s, the former name of the sink %[2]s; write "+
		"%[2]s: {endpoints: [...]} with the options of http.%[2]s beside endpoints", o.Body, name)}
}
