package httpsink

import (
	"cmp"
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/stream"
)

// The values of the option `compress`.
const (
	Gzip = "gzip"
	None = "none"
)

// Options are the options that all HTTP sinks share. A sink's own options embed them. They include
// no timeout of a request, because `flow.timeout` and `flow.abandon` bound the time until a
// response.
type Options struct {
	Endpoints      []Endpoint        `yaml:"endpoints" required:"true" doc:"URLs or {dns: NAME, port: N}, each address a worker"`
	Compress       string            `yaml:"compress" enum:"none,gzip" doc:"compression of bodies"`
	Headers        map[string]string `yaml:"headers" secret:"true" doc:"headers of every request; may replace Content-Type and User-Agent"`
	ConnectTimeout time.Duration     `yaml:"connect_timeout" doc:"time limit for a connection, and again for its TLS handshake"`

	ConnectionAge time.Duration    `yaml:"connection_age" doc:"age at which a connection is replaced, after a new DNS lookup; 0: no limit"`
	Discovery     DiscoveryOptions `yaml:"discovery" doc:"lookups for dns, srv and nats"`

	Basic      *httpaccess.Basic `yaml:"basic" doc:"user and password of every endpoint, as basic auth"`
	Bearer     string            `yaml:"bearer" secret:"true" doc:"token of every endpoint; ${file:/path} keeps it out of the config"`
	BearerFile string            `yaml:"bearer_file" path:"true" doc:"file that holds the token; read again after a 401 or 403"`
	TLS        httpaccess.TLS    `yaml:"tls" doc:"certificates; the defaults trust the system's authorities"`
	Proxy      string            `yaml:"proxy" doc:"environment (HTTP_PROXY, NO_PROXY, ...), none, or a URL: http, https or socks5"`
}

// DefaultOptions returns options without endpoints, with the proxy of the environment.
func DefaultOptions() Options {
	return Options{
		Compress: None, ConnectTimeout: 10 * time.Second, ConnectionAge: 5 * time.Minute,
		Discovery: DiscoveryOptions{Interval: 10 * time.Second}, Proxy: httpaccess.ProxyEnvironment,
	}
}

// reserved lists the headers that the option headers must not contain, because the sink or net/http
// sets them.
var reserved = []string{
	"Connection", "Content-Encoding", "Content-Length", "Host", "Idempotency-Key", "Keep-Alive",
	headerSpans, headerSpanCount, stream.SenderHeader, "Te", "Trailer", "Transfer-Encoding",
	"Upgrade",
}

// Check returns a [stream.OptionError] for an invalid option. It reads no files.
func (o *Options) Check() error {
	if _, err := o.endpoints(Format{}); err != nil {
		return stream.OptionErrorf("endpoints", "%w", err)
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	for name, value := range o.Headers {
		if err := checkHeader(name, value); err != nil {
			return stream.OptionErrorf("headers."+name, "%w", err)
		}
	}
	switch {
	case o.ConnectionAge < 0:
		return stream.OptionErrorf("connection_age", "is %v; write a time, or 0 for no limit",
			o.ConnectionAge)
	case o.ConnectTimeout <= 0:
		return stream.OptionErrorf("connect_timeout", "is %v; write a time above 0",
			o.ConnectTimeout)
	}
	return cmp.Or(o.Discovery.validate(), o.checkRegistry(),
		httpaccess.CheckAuthorization(o.Basic, o.Bearer, o.BearerFile, o.Headers),
		o.TLS.Check(), o.checkSecure(), httpaccess.CheckProxy(o.Proxy), o.checkProxied())
}

// checkProxied returns an error if the option `proxy` has the URL of a proxy, and no endpoint is a
// URL. The addresses of other endpoints are looked up here, and need a direct connection.
func (o *Options) checkProxied() error {
	if o.Proxy == "" || o.Proxy == httpaccess.ProxyEnvironment || o.Proxy == httpaccess.ProxyNone ||
		slices.ContainsFunc(o.Endpoints, func(e Endpoint) bool { return e.URL != "" }) {
		return nil
	}
	return stream.OptionErrorf("proxy", "has no effect: workers found by dns, srv or nats are "+
		"reached without a proxy; remove it, or write the endpoints as URLs")
}

// checkSecure returns an error if there are options for TLS, and no endpoint uses TLS.
func (o *Options) checkSecure() error {
	secure := func(e Endpoint) bool {
		return strings.EqualFold(e.Scheme, "https") ||
			strings.HasPrefix(strings.ToLower(e.URL), "https:")
	}
	if o.TLS == (httpaccess.TLS{}) || slices.ContainsFunc(o.Endpoints, secure) {
		return nil
	}
	return stream.OptionErrorf("tls", "no endpoint is https, so nothing would be encrypted; "+
		"write https:// or remove tls")
}

// CheckFiles returns an error if the file of the option `tls.ca` is not usable.
func (o *Options) CheckFiles() error {
	if _, err := o.TLS.Authorities(); err != nil {
		return stream.OptionErrorf("tls.ca", "%w", err)
	}
	return nil
}

// Validate checks the common options, then the sink's own options, and then the file of the option
// `tls.ca`.
func Validate(o *Options, own interface{ Check() error }) error {
	return cmp.Or(o.Check(), own.Check(), o.CheckFiles())
}

// HasAuthorization reports whether an option or an endpoint sets the header Authorization.
func (o *Options) HasAuthorization() bool {
	all, _ := o.endpoints(Format{}) // Check reports the error
	_, inHeaders := httpaccess.Authorization(o.Headers)
	return o.Basic != nil || o.Bearer != "" || o.BearerFile != "" || inHeaders ||
		slices.ContainsFunc(all, func(e endpoint) bool { return e.auth != "" })
}

// Environment returns lines of text for [stream.EnvironmentUser]. There is a line for each endpoint
// that is reached through a proxy, and the line names the proxy.
func (o *Options) Environment(f Format) []string {
	proxy, err := httpaccess.Proxy(o.Proxy)
	endpoints, wrong := o.endpoints(f)
	if err != nil || wrong != nil || proxy == nil {
		return nil
	}
	var lines []string
	for _, e := range endpoints {
		if u, err := proxy(&nethttp.Request{URL: e.target}); err == nil && u != nil {
			line := fmt.Sprintf("%s through proxy %s", e.name, stream.MaskURLs(u.String()))
			lines = append(lines, line)
		}
	}
	return lines
}

// Within returns err with the key of the option's group before the key of the option. Example:
// group `tls` and key `ca` become `tls.ca`. It returns nil if err is nil.
func Within(group string, err error) error {
	if e, ok := err.(*stream.OptionError); ok {
		inner := *e
		inner.Key = group + "." + e.Key
		return &inner
	}
	return err
}

// checkHeader checks a header. Its errors never show the value, which may be a token.
func checkHeader(name, value string) error {
	if slices.Contains(reserved, nethttp.CanonicalHeaderKey(name)) {
		return errors.New("the sink sets this header itself; remove it")
	}
	return httpaccess.CheckHeader(name, value)
}
