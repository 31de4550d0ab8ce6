package listen

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// TLS has the TLS options of a listener. When the files change, they are read again.
type TLS struct {
	Cert     string `yaml:"cert" path:"true" doc:"PEM file of the certificate, with its chain"`
	Key      string `yaml:"key" path:"true" doc:"PEM file of its key"`
	ClientCA string `yaml:"client_ca" path:"true" doc:"PEM file of authorities; clients must have a certificate of one"`
}

// On reports whether the listener uses TLS.
func (t *TLS) On() bool { return t.Cert != "" }

// Check checks the options below the key `tls`. It also reads the files.
func (t *TLS) Check() error {
	switch {
	case *t == TLS{}:
		return nil
	case t.Cert == "":
		return stream.OptionErrorf("tls.cert", "is missing: a listener with TLS needs a "+
			"certificate")
	case t.Key == "":
		return stream.OptionErrorf("tls.key", "is missing: add the key of tls.cert")
	}
	_, err := t.load()
	return err
}

// load reads the files of certificates and keys, and returns the TLS configuration.
func (t *TLS) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, &stream.OptionError{Key: "tls.cert", Err: err}
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if t.ClientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(t.ClientCA)
	if err != nil {
		return nil, &stream.OptionError{Key: "tls.client_ca", Err: err}
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, stream.OptionErrorf("tls.client_ca", "%s has no certificate in PEM", t.ClientCA)
	}
	return c, nil
}

// lookEvery is the minimum time between two checks of the files.
const lookEvery = time.Second

// certificates is a TLS configuration that is read again when its files change. It is safe for
// concurrent use.
type certificates struct {
	files     *TLS
	protocols []string
	log       *slog.Logger

	mu     sync.Mutex // guards the fields below
	config *tls.Config
	stamps []stamp   // of the files of config
	failed string    // error of the last attempt to load the files; "" after a success
	looked time.Time // time of the last check of the files
}

// stamp identifies a version of a file.
type stamp struct {
	changed time.Time
	size    int64
}

// Config returns a TLS configuration for a listener with the given protocols. For a new connection,
// the files are read again if they have changed. If the changed files are invalid, the old
// certificates stay in use.
func (t *TLS) Config(log *slog.Logger, protocols ...string) (*tls.Config, error) {
	c := &certificates{files: t, protocols: protocols, log: log, looked: time.Now(),
		stamps: t.stamps()}
	var err error
	if c.config, err = t.load(); err != nil {
		return nil, err
	}
	c.config.NextProtos = protocols
	outer := c.config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return c.current(), nil
	}
	return outer, nil
}

func (t *TLS) stamps() (out []stamp) {
	for _, path := range []string{t.Cert, t.Key, t.ClientCA} {
		var s stamp
		if info, err := os.Stat(path); err == nil {
			s = stamp{info.ModTime(), info.Size()}
		}
		out = append(out, s)
	}
	return out
}

// current returns the configuration for a new connection.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.config
	}
	c.looked = time.Now()
	stamps := c.files.stamps()
	if slices.Equal(stamps, c.stamps) {
		c.failed = "" // the changed files were taken back
		return c.config
	}
	config, err := c.files.load()
	if err != nil {
		// The next check loads the files again, because an error such as a missing permission may
		// end without another change of the files.
		if err.Error() != c.failed {
			c.log.Warn("changed certificates are invalid; the old ones remain in use", "error", err)
		}
		c.failed = err.Error()
		return c.config
	}
	config.NextProtos = c.protocols
	c.config, c.stamps, c.failed = config, stamps, ""
	return config
}
