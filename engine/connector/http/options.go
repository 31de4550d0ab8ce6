package http

import (
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock"
)

// The forms of a body.
const (
	NDJSON = "ndjson" // a JSON object a line: the fields of a parsed record, else {"message":"..."}
	Raw    = "raw"    // the records' bytes as they were read, each with its line end
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
	Body           string            `yaml:"body" enum:"ndjson,raw" doc:"ndjson: a JSON object a line; raw: records and line ends"`
	Compress       string            `yaml:"compress" enum:"none,gzip" doc:"the body"`
	Headers        map[string]string `yaml:"headers" secret:"true" doc:"of every request; may replace Content-Type and User-Agent"`
	IdempotencyKey bool              `yaml:"idempotency_key" doc:"send Idempotency-Key and Penstock-Spans, to tell repetitions"`
	ConnectTimeout time.Duration     `yaml:"connect_timeout" doc:"for a connection, its TLS handshake included"`
}

// DefaultOptions post JSON lines with an idempotency key.
func DefaultOptions() *Options {
	return &Options{Method: nethttp.MethodPost, Body: NDJSON, Compress: None, IdempotencyKey: true, ConnectTimeout: 10 * time.Second}
}

// reserved headers are the sink's or the connection's own.
var reserved = []string{
	"Connection", "Content-Encoding", "Content-Length", "Host", "Idempotency-Key", "Keep-Alive", headerSpans, headerSpanCount,
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// Validate says which option is wrong.
func (o *Options) Validate() error {
	if _, err := o.endpoints(); err != nil {
		return &penstock.OptionError{Key: "endpoints", Err: err}
	}
	for _, c := range []struct {
		key, value string
		valid      []string
	}{
		{"method", o.Method, []string{"POST", "PUT", "PATCH"}},
		{"body", o.Body, []string{NDJSON, Raw}},
		{"compress", o.Compress, []string{None, Gzip}},
	} {
		if !slices.Contains(c.valid, c.value) {
			return &penstock.OptionError{Key: c.key, Err: fmt.Errorf("%q is not one of %s", c.value, strings.Join(c.valid, ", "))}
		}
	}
	for name, value := range o.Headers {
		if err := checkHeader(name, value); err != nil {
			return &penstock.OptionError{Key: "headers." + name, Err: err}
		}
	}
	if o.ConnectTimeout <= 0 {
		return &penstock.OptionError{Key: "connect_timeout", Err: fmt.Errorf("is %v; write a time above 0", o.ConnectTimeout)}
	}
	return nil
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

// endpoint is a URL in its parts.
type endpoint struct {
	name   string // for people: scheme, host and path
	target *url.URL
	auth   string // of the header Authorization; "": none
}

// endpoints reads the URLs. Its errors show none of them whole, because they may hold passwords.
func (o *Options) endpoints() ([]endpoint, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("missing: at least one URL, such as http://host:8080/in")
	}
	var all []endpoint
	names := make(map[string]int)
	for i, text := range o.Endpoints {
		e, err := parseEndpoint(text)
		if err != nil {
			return nil, fmt.Errorf("endpoint %d: %w", i+1, err)
		}
		if slices.Index(o.Endpoints, text) != i {
			return nil, fmt.Errorf("endpoint %d, %s, stands twice", i+1, e.name)
		}
		if names[e.name]++; names[e.name] > 1 { // told apart by what is not shown
			e.name = fmt.Sprintf("%s (%d)", e.name, names[e.name])
		}
		all = append(all, e)
	}
	return all, nil
}

func parseEndpoint(text string) (endpoint, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return endpoint{}, errors.New("it is not a URL; write http://host:port/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return endpoint{}, fmt.Errorf("its scheme is %q; write http:// or https://", u.Scheme)
	case u.Hostname() == "":
		return endpoint{}, errors.New("it names no host; write http://host:port/path")
	case u.Fragment != "":
		return endpoint{}, errors.New("it has a fragment (#...), which is never sent; leave it out")
	}
	e := endpoint{target: u}
	if u.User != nil {
		password, _ := u.User.Password()
		r := nethttp.Request{Header: make(nethttp.Header)}
		r.SetBasicAuth(u.User.Username(), password)
		e.auth = r.Header.Get("Authorization")
		u.User = nil
	}
	if u.Path == "" {
		u.Path = "/"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	e.name = shown.String()
	return e, nil
}
