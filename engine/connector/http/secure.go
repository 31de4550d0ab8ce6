package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
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
	CA         string `yaml:"ca" path:"true" doc:"PEM file of the authorities to trust, not the system's; reread when it changes"`
	Cert       string `yaml:"cert" path:"true" doc:"PEM file of our certificate, for receivers that ask; read for each connection"`
	Key        string `yaml:"key" path:"true" doc:"PEM file of its key"`
	ServerName string `yaml:"server_name" doc:"name that the receiver's certificate must have, in place of the URL's host"`
}

// config reads the files. Our own certificate is read for each handshake, so that it can be
// replaced while we run.
func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	var err error
	if c.RootCAs, err = t.authorities(); err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
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

// authorities reads tls.ca; nil means those of the system.
func (t *TLS) authorities() (*x509.CertPool, error) {
	if t.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", t.CA)
	}
	return pool, nil
}

// trust is the sink's TLS configuration, which follows changes of tls.ca. It is safe for concurrent
// use.
type trust struct {
	options *TLS
	log     *slog.Logger

	mu     sync.Mutex // guards the fields below
	config *tls.Config
	file   os.FileInfo // of tls.ca, as last read; nil if it could not be found
}

func newTrust(o *TLS, log *slog.Logger) (*trust, error) {
	t := &trust{options: o, log: log}
	if o.CA != "" {
		t.file, _ = os.Stat(o.CA) // config reports a missing file
	}
	var err error
	t.config, err = o.config()
	return t, err
}

// current returns the configuration, a new one if tls.ca has changed. While the new file cannot be
// used the old configuration stays.
func (t *trust) current() *tls.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.options.CA == "" {
		return t.config
	}
	file, err := os.Stat(t.options.CA)
	if err == nil && t.file != nil && os.SameFile(file, t.file) && file.ModTime().Equal(t.file.ModTime()) && file.Size() == t.file.Size() {
		return t.config
	}
	if err != nil {
		if t.file != nil {
			t.log.Warn("authorities cannot be read again; the old ones stay", "file", t.options.CA, "error", err)
		}
		t.file = nil
		return t.config
	}
	t.file = file
	config, err := t.options.config()
	if err != nil {
		t.log.Warn("authorities cannot be read again; the old ones stay", "file", t.options.CA, "error", err)
		return t.config
	}
	t.config = config
	return config
}

// maxToken bounds a token's file.
const maxToken = 64 << 10

// token is what stands in Authorization. One that comes from a file is read again when the receiver
// refuses it. It is safe for concurrent use.
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
