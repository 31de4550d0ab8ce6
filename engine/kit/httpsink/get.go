package httpsink

import (
	"context"
	"fmt"
	"io"
	nethttp "net/http"
)

// CheckURL returns an error if text is not a URL for [Sink.Get]. The error never contains the URL,
// because a URL may contain a password.
func CheckURL(text string) error {
	_, err := parseEndpoint(text)
	return err
}

// Get sends a GET request to target with the headers, credentials, certificates and proxy of the
// sink. The caller must close the returned body. Any status other than 200 is an error. Get works
// without a previous call of Open, because audits do not open the sink.
func (s *Sink) Get(ctx context.Context, target string) (io.ReadCloser, error) {
	e, err := parseEndpoint(target)
	if err != nil {
		return nil, err
	}
	e.name = shown(e.target, e.target.Host)
	if err := s.access(); err != nil {
		return nil, err
	}
	l := newLane(s, e)
	l.headers.Del("Content-Type")
	l.headers.Del("Content-Encoding")
	if auth := s.token.Header(); auth != "" {
		l.headers.Set("Authorization", auth)
	}
	transport := newTransport(s, &e, s.trust.Current().Clone())
	req := &nethttp.Request{
		Method: nethttp.MethodGet, URL: e.target, Host: e.target.Host, Header: l.headers,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	res, err := transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		transport.CloseIdleConnections()
		return nil, fmt.Errorf("GET %s: %w", e.name, faultOf(ctx, err))
	}
	body := &getBody{ReadCloser: res.Body, transport: transport}
	if res.StatusCode == nethttp.StatusOK {
		return body, nil
	}
	defer body.Close()
	text, _ := readAnswer(res.Body, maxQuoted+1) // the error is the status
	return nil, (&Response{
		Method: nethttp.MethodGet, Endpoint: e.name, Status: res.StatusCode, Body: text,
	}).StatusError()
}

// getBody is the body of a response of Get.
type getBody struct {
	io.ReadCloser
	transport *nethttp.Transport
}

// Close closes the body and its connection.
func (b *getBody) Close() error {
	err := b.ReadCloser.Close()
	b.transport.CloseIdleConnections()
	return err
}
