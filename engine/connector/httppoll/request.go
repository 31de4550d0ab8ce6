package httppoll

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/url"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/stream"
)

const (
	connectTimeout = 10 * time.Second
	idleTimeout    = 90 * time.Second
	maxHeader      = 64 << 10
	maxRedirects   = 5
)

// client requests pages for one reader.
type client struct {
	o       *Options
	token   *httpaccess.Token
	trust   *httpaccess.Trust
	trusted *tls.Config // the configuration in use
	http    *nethttp.Client
	proxy   func(*nethttp.Request) (*url.URL, error)
	base    nethttp.RoundTripper // nil if the network is used
}

// newClient returns a client. It reads the files with certificates and the token.
func newClient(o *Options, h stream.Host, base nethttp.RoundTripper) (*client, error) {
	c := &client{o: o, base: base}
	var err error
	if c.trust, err = httpaccess.NewTrust(&o.TLS, h.Log()); err != nil {
		return nil, err
	}
	if c.proxy, err = httpaccess.Proxy(o.Proxy); err != nil {
		return nil, err
	}
	c.token, err = httpaccess.NewToken(o.user, o.Bearer, o.BearerFile)
	return c, err
}

// current returns the HTTP client. If the file of the option tls.ca has changed, it creates a new
// client.
func (c *client) current() *nethttp.Client {
	trusted := c.trust.Current()
	if c.http != nil && c.trusted == trusted {
		return c.http
	}
	c.close()
	c.trusted = trusted
	transport := c.base
	if transport == nil {
		transport = &nethttp.Transport{
			Proxy: c.proxy, TLSClientConfig: trusted.Clone(), TLSHandshakeTimeout: connectTimeout,
			ForceAttemptHTTP2:  true,
			DisableCompression: true, // read decompresses, because of the size limit
			MaxIdleConns:       1, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader,
		}
	}
	c.http = &nethttp.Client{
		Transport: transport,
		CheckRedirect: func(req *nethttp.Request, via []*nethttp.Request) error {
			if req.URL.Scheme != c.o.target.Scheme || !strings.EqualFold(req.URL.Host, c.o.target.Host) {
				return &permanentError{fmt.Sprintf("redirects to another server, %s://%s; only "+
					"the server of url is allowed",
					req.URL.Scheme, req.URL.Host)}
			}
			if len(via) >= maxRedirects {
				return &permanentError{fmt.Sprintf("redirects more than %d times", maxRedirects)}
			}
			return nil
		},
	}
	return c.http
}

func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// permanentError means that the server redirects the request to another server, or too often, and
// the client does not follow; or that a response is larger than the option max_response.
type permanentError struct{ text string }

// Error describes the redirect, or names the limit.
func (e *permanentError) Error() string { return e.text }

// response is a page as received from the server.
type response struct {
	url    *url.URL
	status int
	header nethttp.Header
	body   []byte // decompressed
}

// validators has the headers ETag and Last-Modified of a response. With them, the next request for
// the same page is conditional: the server may answer 304, not modified.
type validators struct{ etag, modified string }

func (v validators) isSet() bool { return v != validators{} }

// get requests a page. Its errors contain the URL only without user and query.
func (c *client) get(ctx context.Context, u *url.URL, v validators) (*response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, fmt.Errorf("no complete response "+
		"within timeout (%v)", c.o.Timeout))
	defer cancel()
	r, err := c.do(ctx, u, v)
	if err == nil && c.o.BearerFile != "" &&
		(r.status == nethttp.StatusUnauthorized || r.status == nethttp.StatusForbidden) {
		refused := c.token.Header()
		if err := c.token.Read(); err != nil {
			return nil, fmt.Errorf("%s: %d %s, and the token cannot be read again: %w", c.place(),
				r.status, nethttp.StatusText(r.status), err)
		}
		if c.token.Header() != refused {
			r, err = c.do(ctx, u, v)
		}
	}
	if err == nil {
		return r, nil
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // omits the URL
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("%s: %w", c.place(), err)
}

func (c *client) place() string { return "GET " + c.o.shown() }

func (c *client) do(ctx context.Context, u *url.URL, v validators) (*response, error) {
	req, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "penstock")
	req.Header.Set("Accept-Encoding", "gzip")
	if c.o.Format == JSON {
		req.Header.Set("Accept", "application/json")
	}
	if auth := c.token.Header(); auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if v.etag != "" {
		req.Header.Set("If-None-Match", v.etag)
	}
	if v.modified != "" {
		req.Header.Set("If-Modified-Since", v.modified)
	}
	for name, value := range c.o.Headers {
		req.Header.Set(name, value)
	}
	res, err := c.current().Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	r := &response{url: res.Request.URL, status: res.StatusCode, header: res.Header}
	if r.status >= 200 && r.status < 300 {
		r.body, err = c.read(res)
	}
	return r, err
}

// read reads and decompresses the body. The result has at most max_response bytes.
func (c *client) read(res *nethttp.Response) ([]byte, error) {
	limit := int64(c.o.MaxResponse)
	body := io.LimitReader(res.Body, limit+1)
	switch encoding := strings.ToLower(res.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, fmt.Errorf("decompress the response: %w", err)
		}
		body = z
	default:
		return nil, fmt.Errorf("the response has the encoding %q, which was not requested", encoding)
	}
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if int64(len(data)) > limit {
		return nil, &permanentError{fmt.Sprintf("the response is larger than max_response (%v); "+
			"raise it, or request smaller pages", c.o.MaxResponse)}
	}
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	return data, nil
}

// isPermanent reports whether err means that requests will fail until an operator changes
// something.
func isPermanent(err error) bool {
	_, permanent := errors.AsType[*permanentError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return permanent || untrusted
}
