package http

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// The forms of a body.
const (
	NDJSON = "ndjson" // a JSON object a line: the fields of a parsed record, else {"message":"..."}
	Raw    = "raw"    // the records' bytes as they were read, each with its line end

	JSONArray         = "json_array"         // one JSON array of the objects that ndjson has a line each
	ElasticsearchBulk = "elasticsearch_bulk" // an action line and a document for each record, to /_bulk
	Loki              = "loki"               // streams of labels and lines, to /loki/api/v1/push
	ClickHouse        = "clickhouse"         // INSERT ... FORMAT JSONEachRow
)

// How a body is compressed.
const (
	Gzip = "gzip"
	None = "none"
)

// Options of the sink. How long an answer may take is `flow.timeout` and `flow.abandon`.
type Options struct {
	Endpoints      []string          `yaml:"endpoints" required:"true" doc:"URLs, each a worker; user:password becomes basic auth"`
	Method         string            `yaml:"method" enum:"POST,PUT,PATCH" doc:"of every request"`
	Body           string            `yaml:"body" enum:"ndjson,json_array,raw,elasticsearch_bulk,loki,clickhouse" doc:"form of the body"`
	Compress       string            `yaml:"compress" enum:"none,gzip" doc:"the body"`
	Headers        map[string]string `yaml:"headers" secret:"true" doc:"of every request; may replace Content-Type and User-Agent"`
	IdempotencyKey expr.Text         `yaml:"idempotency_key" doc:"true: the batch's id, to tell repetitions; or an expression; or false"`
	Accept         expr.Text         `yaml:"accept" doc:"a condition on status and body of an answer: it is delivered; default: 2xx"`
	ConnectTimeout time.Duration     `yaml:"connect_timeout" doc:"for a connection, its TLS handshake included"`

	Basic      *Basic `yaml:"basic" doc:"user and password of every endpoint, as basic auth"`
	Bearer     string `yaml:"bearer" secret:"true" doc:"token of every endpoint; write ${file:/path} to keep it out of the config"`
	BearerFile string `yaml:"bearer_file" path:"true" doc:"file that holds the token; read again after a 401, so that it can be replaced"`
	TLS        TLS    `yaml:"tls" doc:"certificates; the defaults trust what the system trusts"`
	Proxy      string `yaml:"proxy" doc:"environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), none, or a URL: http, https or socks5"`

	Elasticsearch ElasticsearchOptions `yaml:"elasticsearch" doc:"of body: elasticsearch_bulk"`
	Loki          LokiOptions          `yaml:"loki" doc:"of body: loki"`
	ClickHouse    ClickHouseOptions    `yaml:"clickhouse" doc:"of body: clickhouse"`

	accept *expr.Program // nil: 2xx
	key    *expr.Program // nil: the batch's id, if any
}

// DefaultOptions post JSON lines with an idempotency key.
func DefaultOptions() *Options {
	return &Options{
		Method: nethttp.MethodPost, Body: NDJSON, Compress: None, IdempotencyKey: keyOfBatch, ConnectTimeout: 10 * time.Second,
		Proxy: proxyEnv, Elasticsearch: defaultElasticsearch(), Loki: defaultLoki(),
	}
}

// reserved headers are the sink's or the connection's own.
var reserved = []string{
	"Connection", "Content-Encoding", "Content-Length", "Host", "Idempotency-Key", "Keep-Alive", headerSpans, headerSpanCount,
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Validate reports which option is wrong. It reads the file of tls.ca.
func (o *Options) Validate() error {
	if err := o.validate(); err != nil {
		return err
	}
	if _, err := o.TLS.authorities(); err != nil {
		return &stream.OptionError{Key: "tls.ca", Err: err}
	}
	return nil
}

// validate is Validate without files.
func (o *Options) validate() error {
	if _, err := o.endpoints(); err != nil {
		return &stream.OptionError{Key: "endpoints", Err: err}
	}
	for _, c := range []struct {
		key, value string
		valid      []string
	}{
		{"method", o.Method, []string{"POST", "PUT", "PATCH"}},
		{"body", o.Body, []string{NDJSON, JSONArray, Raw, ElasticsearchBulk, Loki, ClickHouse}},
		{"compress", o.Compress, []string{None, Gzip}},
	} {
		if !slices.Contains(c.valid, c.value) {
			return &stream.OptionError{Key: c.key, Err: fmt.Errorf("%q is not one of %s", c.value, strings.Join(c.valid, ", "))}
		}
	}
	for name, value := range o.Headers {
		if err := checkHeader(name, value); err != nil {
			return &stream.OptionError{Key: "headers." + name, Err: err}
		}
	}
	if o.ConnectTimeout <= 0 {
		return &stream.OptionError{Key: "connect_timeout", Err: fmt.Errorf("is %v; write a time above 0", o.ConnectTimeout)}
	}
	if err := o.validateAccept(); err != nil {
		return err
	}
	if err := o.validateAccess(); err != nil {
		return err
	}
	return o.validateStore()
}

// checkHeader never shows the value, which may be a token.
func checkHeader(name, value string) error {
	const special = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(name) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte(special, c) < 0 {
			return fmt.Errorf("the name holds %q, which no header name may", c)
		}
	}
	if name == "" {
		return errors.New("the name is empty")
	}
	if slices.Contains(reserved, nethttp.CanonicalHeaderKey(name)) {
		return errors.New("the sink sets this header itself; leave it out")
	}
	for _, c := range []byte(value) {
		if c < ' ' && c != '\t' || c == 0x7F {
			return fmt.Errorf("the value holds the control character %#x, which no header may", c)
		}
	}
	return nil
}
