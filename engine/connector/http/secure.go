package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/url"
	"os"
	"strings"
	"sync"
)

// Basic is a user and its password.
type Basic struct {
	User     string `yaml:"user" required:"true" doc:"name"`
	Password string `yaml:"password" secret:"true" doc:"write ${file:/path} to keep it out of the config"`
}

// TLS says whom to trust and who we are. Certificates are always verified.
type TLS struct {
	CA         string `yaml:"ca" path:"true" doc:"PEM file of the authorities to trust, in place of the system's"`
	Cert       string `yaml:"cert" path:"true" doc:"PEM file of our certificate, for receivers that ask; read for each connection"`
	Key        string `yaml:"key" path:"true" doc:"PEM file of its key"`
	ServerName string `yaml:"server_name" doc:"name that the receiver's certificate must have, in place of the URL's host"`
}

// config reads the files. Our own certificate is read for each handshake, so that it can be replaced while we run.
func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: %s holds no certificate in PEM", t.CA)
		}
	}
	if t.Cert != "" {
		if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			return &pair, err
		}
	}
	return c, nil
}

const (
	proxyNone = "none"
	proxyEnv  = "environment"
)

// proxy returns what a transport asks; nil: none.
func (o *Options) proxy() (func(*nethttp.Request) (*url.URL, error), error) {
	switch o.Proxy {
	case "", proxyNone:
		return nil, nil
	case proxyEnv:
		return nethttp.ProxyFromEnvironment, nil
	}
	u, err := url.Parse(o.Proxy)
	switch {
	case err != nil, u.Host == "":
		return nil, errors.New("is neither none, environment nor a URL such as http://proxy:3128")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return nil, fmt.Errorf("its scheme is %q; write http://, https:// or socks5://", u.Scheme)
	}
	return nethttp.ProxyURL(u), nil
}

// maxToken bounds a token's file.
const maxToken = 64 << 10

// token is what stands in Authorization. One that comes from a file is read again when the receiver refuses
// it. It is safe for concurrent use.
type token struct {
	file string // "": it never changes

	mu     sync.Mutex // guards header
	header string
}

func newToken(o *Options) (*token, error) {
	switch {
	case o.Basic != nil:
		r := nethttp.Request{Header: make(nethttp.Header)}
		r.SetBasicAuth(o.Basic.User, o.Basic.Password)
		return &token{header: r.Header.Get("Authorization")}, nil
	case o.Bearer != "":
		return &token{header: "Bearer " + o.Bearer}, nil
	case o.BearerFile != "":
		t := &token{file: o.BearerFile}
		return t, t.read()
	}
	return &token{}, nil
}

func (t *token) get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.header
}

// read takes the token from its file; an error leaves the old one.
func (t *token) read() error {
	if t.file == "" {
		return nil
	}
	f, err := os.Open(t.file)
	if err != nil {
		return fmt.Errorf("bearer_file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	word := strings.TrimSpace(string(text))
	if err == nil && word == "" {
		err = errors.New("it is empty")
	}
	if err == nil {
		err = checkToken(word)
	}
	if err != nil {
		return fmt.Errorf("bearer_file: %s: %w", t.file, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.header = "Bearer " + word
	return nil
}
