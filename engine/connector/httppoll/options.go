package httppoll

import (
	"cmp"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/stream"
)

// The formats of a response.
const (
	JSON  = "json"  // an array of objects, or an object that contains it at `records`
	Lines = "lines" // each line is a record; blank lines are ignored
)

// Options are the options of the source.
type Options struct {
	URL      string    `yaml:"url" required:"true" secret:"true" doc:"URL of the first page; user:password becomes basic auth"`
	Name     string    `yaml:"name" doc:"name of the feed, which keeps its position when url changes; default: url"`
	Interval Interval  `yaml:"interval" doc:"time between requests at the end of the feed"`
	Format   string    `yaml:"format" enum:"json,lines" doc:"format of a response"`
	Records  expr.Text `yaml:"records" doc:"an expression: the array of records in a response, such as body.items; default: body"`
	ID       expr.Text `yaml:"id" doc:"an expression over a record: its id, by which repeated records are skipped"`
	Overlap  int       `yaml:"overlap" doc:"with id: number of remembered ids before a page"`

	Next   expr.Text `yaml:"next" doc:"an expression: the next page, null at the end; default: links.next, of the header Link"`
	Cursor string    `yaml:"cursor" doc:"the query parameter that gets the value of next or after; without it next is a URL"`
	After  expr.Text `yaml:"after" doc:"an expression over a record: the cursor that requests the records after it, in place of next"`
	Offset string    `yaml:"offset" doc:"a query parameter that gets the number of records read, in place of next"`

	Headers    map[string]string `yaml:"headers" secret:"true" doc:"headers of every request"`
	Basic      *httpaccess.Basic `yaml:"basic" doc:"user and password, as basic auth"`
	Bearer     string            `yaml:"bearer" secret:"true" doc:"token; write ${file:/path} to keep it out of the config"`
	BearerFile string            `yaml:"bearer_file" path:"true" doc:"file that holds the token; read again after a 401 or 403"`
	TLS        httpaccess.TLS    `yaml:"tls" doc:"certificates; the defaults trust the system's authorities"`
	Proxy      string            `yaml:"proxy" doc:"environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), none, or a URL: http, https or socks5"`

	Timeout     time.Duration `yaml:"timeout" doc:"time limit for one request with its response"`
	MaxResponse stream.Size   `yaml:"max_response" doc:"maximum size of a response, decompressed"`
	Retry       Retry         `yaml:"retry" doc:"waits after failed requests"`

	target  *url.URL // URL without user and password
	user    *httpaccess.Basic
	records *expr.Program // nil if the body itself has the records
	id      *expr.Program // nil: none
	next    *expr.Program // nil if the header Link, after or offset is used
	after   *expr.Program // nil: none
}

// Interval has the bounds of the time between two requests.
type Interval struct {
	Min time.Duration `yaml:"min" doc:"interval after new records"`
	Max time.Duration `yaml:"max" doc:"interval after many requests without new records"`
}

// Retry configures the waits after failed requests.
type Retry struct {
	Min    time.Duration `yaml:"min" doc:"wait after the first failure; doubles with each further one, with full jitter"`
	Max    time.Duration `yaml:"max" doc:"longest wait, unless the server demands a longer one"`
	GiveUp time.Duration `yaml:"give_up" doc:"time of failures after which a run with --once ends"`
}

// DefaultOptions returns the default options, without a URL.
func DefaultOptions() *Options {
	return &Options{
		Interval: Interval{Min: time.Second, Max: 5 * time.Minute}, Format: JSON, Overlap: defaultOverlap,
		Proxy: httpaccess.ProxyEnvironment, Timeout: 30 * time.Second, MaxResponse: 16 << 20,
		Retry: Retry{Min: 500 * time.Millisecond, Max: time.Minute, GiveUp: time.Minute},
	}
}

const (
	defaultOverlap = 32
	maxOverlap     = 64
	minInterval    = 10 * time.Millisecond
	maxInterval    = 24 * time.Hour
	maxResponse    = 512 << 20
)

// Validate returns an error for an invalid option. It also reads the file of tls.ca.
func (o *Options) Validate() error {
	for _, check := range []func() error{o.checkURL, o.checkPaging, o.checkLimits, o.checkAccess} {
		if err := check(); err != nil {
			return err
		}
	}
	return o.compile()
}

// checkURL returns an error for an invalid URL. The error does not contain the URL, which may
// contain a password.
func (o *Options) checkURL() error {
	if o.URL == "" {
		return stream.OptionErrorf("url", "is missing; write https://host/path")
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return stream.OptionErrorf("url", "is not a URL; write https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return stream.OptionErrorf("url", "has the scheme %q; write http:// or https://", u.Scheme)
	case u.Hostname() == "":
		return stream.OptionErrorf("url", "has no host; write https://host/path")
	case u.Fragment != "":
		return stream.OptionErrorf("url", "has a fragment (#...), which is never sent; remove it")
	}
	o.user = o.Basic
	if u.User != nil {
		if o.Basic != nil || o.Bearer != "" || o.BearerFile != "" {
			return stream.OptionErrorf("url", "has a user, but basic, bearer or bearer_file "+
				"gives another one; remove one of them")
		}
		password, _ := u.User.Password()
		o.user = &httpaccess.Basic{User: u.User.Username(), Password: password}
		u.User = nil
	}
	if u.Path == "" {
		u.Path = "/"
	}
	o.target = u
	return nil
}

func (o *Options) checkPaging() error {
	switch {
	case o.Format != JSON && o.Format != Lines:
		return stream.OptionErrorf("format", "is %q, want %s or %s", o.Format, JSON, Lines)
	case o.Format == Lines && o.Records != "":
		return stream.OptionErrorf("records", "needs format: json; with format: lines each line "+
			"is a record")
	case o.Offset != "" && o.Next != "":
		return stream.OptionErrorf("offset", "excludes next; remove one of them")
	case o.Offset != "" && o.Cursor != "":
		return stream.OptionErrorf("offset", "excludes cursor; remove one of them")
	case o.Offset != "" && o.After != "":
		return stream.OptionErrorf("offset", "excludes after; remove one of them")
	case o.After != "" && o.Next != "":
		return stream.OptionErrorf("after", "excludes next; remove one of them")
	case o.After != "" && o.Cursor == "":
		return stream.OptionErrorf("after", "needs cursor, the query parameter that gets its value")
	case o.Cursor != "" && o.Next == "" && o.After == "":
		return stream.OptionErrorf("cursor", "needs next (the cursor in a response, such as "+
			"body.next_cursor) or after (the cursor of a record, such as id)")
	case o.ID != "" && (o.After != "" || o.Offset != ""):
		return stream.OptionErrorf("id", "needs next: pages of after and offset do not overlap")
	case o.Overlap < 1 || o.Overlap > maxOverlap:
		return stream.OptionErrorf("overlap", "is %d, want 1 to %d", o.Overlap, maxOverlap)
	case o.Overlap != defaultOverlap && o.ID == "":
		return stream.OptionErrorf("overlap", "needs id, which identifies repeated records")
	}
	for key, parameter := range map[string]string{"cursor": o.Cursor, "offset": o.Offset} {
		if parameter != "" && o.target.Query().Has(parameter) {
			return stream.OptionErrorf(key, "%q is also in url; remove it there", parameter)
		}
	}
	return nil
}

func (o *Options) checkLimits() error {
	outside := cmp.Or(
		stream.CheckRange("interval.min", o.Interval.Min, minInterval, maxInterval),
		stream.CheckRange("interval.max", o.Interval.Max, minInterval, maxInterval),
		stream.CheckRange("timeout", o.Timeout, 100*time.Millisecond, time.Hour),
		stream.CheckRange("retry.min", o.Retry.Min, time.Millisecond, time.Hour),
		stream.CheckRange("retry.max", o.Retry.Max, time.Millisecond, maxInterval),
		stream.CheckRange("retry.give_up", o.Retry.GiveUp, 0, maxInterval),
	)
	switch {
	case outside != nil:
		return outside
	case o.Interval.Max < o.Interval.Min:
		return stream.OptionErrorf("interval.max", "is %v, less than interval.min, %v",
			o.Interval.Max, o.Interval.Min)
	case o.Retry.Max < o.Retry.Min:
		return stream.OptionErrorf("retry.max", "is %v, less than retry.min, %v", o.Retry.Max,
			o.Retry.Min)
	}
	return stream.CheckRange("max_response", o.MaxResponse, 1, maxResponse)
}

// reserved lists headers that the source or the connection sets.
var reserved = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Host", "If-Modified-Since", "If-None-Match",
	"Keep-Alive", "Range", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade",
}

func (o *Options) checkAccess() error {
	for name, value := range o.Headers {
		err := httpaccess.CheckHeader(name, value)
		if slices.Contains(reserved, nethttp.CanonicalHeaderKey(name)) {
			err = errors.New("the source sets this header itself; remove it")
		}
		if err != nil {
			return &stream.OptionError{Key: "headers." + name, Err: err}
		}
	}
	if err := httpaccess.CheckAuthorization(o.user, o.Bearer, o.BearerFile, o.Headers); err != nil {
		return err
	}
	if err := o.TLS.Check(); err != nil {
		return err
	}
	if o.TLS != (httpaccess.TLS{}) && o.target.Scheme != "https" {
		return stream.OptionErrorf("tls", "url is not https, so nothing would be encrypted; "+
			"write https:// or remove tls")
	}
	if _, err := o.TLS.Authorities(); err != nil {
		return &stream.OptionError{Key: "tls.ca", Err: err}
	}
	return httpaccess.CheckProxy(o.Proxy)
}

// compile compiles the expressions.
func (o *Options) compile() (err error) {
	recordSchema := stream.Schema{Open: o.Format == JSON, Fields: messageFields}
	for _, e := range []struct {
		key     string
		text    expr.Text
		schema  stream.Schema
		program **expr.Program
	}{
		{"records", o.Records, responseSchema, &o.records},
		{"next", o.Next, pageSchema, &o.next},
		{"id", o.ID, recordSchema, &o.id},
		{"after", o.After, recordSchema, &o.after},
	} {
		if *e.program, err = e.text.Compile(e.key, e.schema); err != nil {
			return err
		}
		if *e.program != nil && (*e.program).Meta() {
			return stream.OptionErrorf(e.key, "meta belongs to records; docs/source-http-poll.md "+
				"lists the names")
		}
	}
	return nil
}

// ReadsObjects implements stream.ObjectOptions.
func (o *Options) ReadsObjects() bool { return o.Format == JSON }

// Shape implements stream.Shaper. The members of JSON objects become fields.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	if o.Format == Lines {
		return in, nil
	}
	return stream.Schema{Open: true, OnError: in.OnError}, nil
}

// FromEnvironment implements stream.EnvironmentUser. It describes the proxy in use, if any. This is
// the proxy of the environment or of the option proxy.
func (o *Options) FromEnvironment() []string {
	proxy, err := httpaccess.Proxy(o.Proxy)
	if err != nil || proxy == nil || o.target == nil {
		return nil
	}
	u, err := proxy(&nethttp.Request{URL: o.target})
	if err != nil || u == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s through proxy %s", o.shown(), stream.MaskURLs(u.String()))}
}

// shown returns the URL without user and query, for messages. These parts may contain secrets.
func (o *Options) shown() string {
	u := url.URL{Scheme: o.target.Scheme, Host: o.target.Host, Path: o.target.Path, RawPath: o.target.RawPath}
	return u.String()
}

// mode returns how a token identifies a page.
func (o *Options) mode() mode {
	switch {
	case o.Offset != "":
		return byOffset
	case o.After != "":
		return byRecord
	case o.Cursor != "":
		return byCursor
	}
	return byURL
}

// resolve returns the URL of a page.
func (o *Options) resolve(token string) *url.URL {
	u := *o.target
	switch m := o.mode(); {
	case m == byURL && token != "":
		// Do not use ResolveReference: it would take the beginning of a path such as //a/b
		// for the name of another server.
		if ref, err := url.ParseRequestURI(token); err == nil {
			u.Path, u.RawPath, u.RawQuery = ref.Path, ref.RawPath, ref.RawQuery
		}
	case (m == byCursor || m == byRecord) && token != "":
		u.RawQuery = withParameter(u.RawQuery, o.Cursor, token)
	case m == byOffset:
		u.RawQuery = withParameter(u.RawQuery, o.Offset, cmp.Or(token, "0"))
	}
	return &u
}

func withParameter(query, name, value string) string {
	pair := url.QueryEscape(name) + "=" + url.QueryEscape(value)
	return strings.TrimPrefix(query+"&"+pair, "&")
}
