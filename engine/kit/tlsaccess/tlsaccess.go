// Package tlsaccess has the TLS options that clients share. It also has a TLS configuration that is
// updated when its files change while the program runs.
package tlsaccess

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/penstock-io/penstock/stream"
)

// TLS has the certificates that a client uses. The certificates of servers are always verified.
type TLS struct {
	CA         string `yaml:"ca" path:"true" doc:"PEM file of trusted authorities, in place of the system's; reread when it changes"`
	Cert       string `yaml:"cert" path:"true" doc:"PEM file of the client certificate; read for each connection"`
	Key        string `yaml:"key" path:"true" doc:"PEM file of its key"`
	ServerName string `yaml:"server_name" doc:"name required in the server's certificate, in place of its host"`
}

// Check checks the options without reading files.
func (t *TLS) Check() error {
	switch {
	case t.Cert != "" && t.Key == "":
		return stream.OptionErrorf("tls.key", "is missing: add the key of tls.cert")
	case t.Key != "" && t.Cert == "":
		return stream.OptionErrorf("tls.cert", "is missing: add the certificate of tls.key")
	}
	return nil
}

// Read checks the options, and also reads the files.
func (t *TLS) Read() error {
	if err := t.Check(); err != nil {
		return err
	}
	_, err := t.config()
	return err
}

// config returns a TLS configuration with the content of the files of the options ca, cert and key.
// The client's own certificate is read again for each handshake, so that it can be replaced while
// the program runs.
func (t *TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	var err error
	if c.RootCAs, err = t.Authorities(); err != nil {
		return nil, &stream.OptionError{Key: "tls.ca", Err: err}
	}
	if t.Cert != "" {
		if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
			return nil, &stream.OptionError{Key: "tls.cert", Err: err}
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			return &pair, err
		}
	}
	return c, nil
}

// Authorities returns the certificates in the file CA. If CA is empty, it returns nil, which means
// the authorities of the system.
func (t *TLS) Authorities() (*x509.CertPool, error) {
	if t.CA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", t.CA)
	}
	return pool, nil
}

// Trust is the TLS configuration of a client. It is updated when the file of tls.ca changes. It is
// safe for concurrent use.
type Trust struct {
	options *TLS
	log     *slog.Logger

	mu     sync.Mutex // guards the fields below
	config *tls.Config
	file   os.FileInfo // version of tls.ca that was read last; nil if the file was missing
}

// NewTrust returns the configuration for o. It reads the files.
func NewTrust(o *TLS, log *slog.Logger) (*Trust, error) {
	t := &Trust{options: o, log: log}
	if o.CA != "" {
		t.file, _ = os.Stat(o.CA) // if the file is missing, config reports it
	}
	var err error
	t.config, err = o.config()
	return t, err
}

// Current returns the configuration. If the file of tls.ca has changed, Current returns a new
// configuration. If the file is now invalid or missing, it returns the old one.
func (t *Trust) Current() *tls.Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.options.CA == "" {
		return t.config
	}
	file, err := os.Stat(t.options.CA)
	if err == nil && t.file != nil && os.SameFile(file, t.file) &&
		file.ModTime().Equal(t.file.ModTime()) && file.Size() == t.file.Size() {
		return t.config
	}
	if err != nil {
		if t.file != nil {
			t.log.Warn("cannot read the authorities again; the old ones remain in use",
				"file", t.options.CA,
				"error", err)
		}
		t.file = nil
		return t.config
	}
	t.file = file
	config, err := t.options.config()
	if err != nil {
		t.log.Warn("cannot read the authorities again; the old ones remain in use",
			"file", t.options.CA,
			"error", err)
		return t.config
	}
	t.config = config
	return config
}
