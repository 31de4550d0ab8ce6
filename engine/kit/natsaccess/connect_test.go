//go:build !no_nats

package natsaccess_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/engine/kit/natsaccess"
)

const patience = 20 * time.Second

// certificate returns a new self-signed certificate for loopback, also in PEM form.
func certificate(t *testing.T) (pair tls.Certificate, text []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pair = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return pair, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serve starts a server with a certificate on a port; -1 selects a free port. It calls handshake,
// if not nil, at the start of each TLS handshake.
func serve(t *testing.T, pair tls.Certificate, port int, handshake func()) (
	s *server.Server, bound int,
) {
	t.Helper()
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if handshake != nil {
			handshake()
		}
		return &pair, nil
	}
	o := &server.Options{
		Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true,
		Username: "penstock", Password: "secret",
		TLS: true, TLSConfig: &tls.Config{GetCertificate: certificate}, TLSTimeout: 10,
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s, o.Port
}

// TestAuthoritiesAreReread checks that a client connects again to a server that has a certificate
// of another authority, once tls.ca is replaced.
func TestAuthoritiesAreReread(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	write := func(text []byte) {
		t.Helper()
		next := file + ".next"
		if err := errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
	}
	pair, authority := certificate(t)
	write(authority)
	// The second server needs the port that the first one had.
	s, port := serve(t, pair, connectortest.FreePort(t), nil)
	o := natsaccess.Options{URL: s.ClientURL(), User: "penstock", Password: "secret",
		TLS: httpaccess.TLS{CA: file}}
	options, err := o.Login(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handshakes, restored := make(chan struct{}, 1), make(chan struct{}, 1)
	options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ReconnectJitter(0, 0),
		nats.ReconnectHandler(func(*nats.Conn) { restored <- struct{}{} }))
	conn, err := nats.Connect(o.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pair, authority = certificate(t)
	s.Shutdown()
	s.WaitForShutdown()
	serve(t, pair, port, func() {
		select {
		case handshakes <- struct{}{}:
		default:
		}
	})
	for range 2 { // the second handshake begins after the first has failed
		select {
		case <-handshakes:
		case <-restored:
			t.Fatal("connected to a server with a certificate of an unknown authority")
		case <-time.After(patience):
			t.Fatal("the client does not try to connect again")
		}
	}
	write(authority)
	select {
	case <-restored:
	case <-time.After(patience):
		t.Fatal("the client does not connect after its file of authorities was replaced")
	}
}

// TestRefusedLogins checks that a wrong login and an unknown authority are errors.
func TestRefusedLogins(t *testing.T) {
	pair, authority := certificate(t)
	_, other := certificate(t)
	dir := t.TempDir()
	right, wrong := filepath.Join(dir, "right.pem"), filepath.Join(dir, "wrong.pem")
	err := errors.Join(os.WriteFile(right, authority, 0o600), os.WriteFile(wrong, other, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s, _ := serve(t, pair, -1, nil)
	for name, c := range map[string]struct {
		user, token, ca string
		want            error // nil: connects
	}{
		"right":             {user: "penstock", ca: right},
		"another user":      {user: "other", ca: right, want: nats.ErrAuthorization},
		"token":             {token: "secret", ca: right, want: nats.ErrAuthorization},
		"another authority": {user: "penstock", ca: wrong, want: x509.UnknownAuthorityError{}},
		"missing file":      {user: "penstock", ca: filepath.Join(dir, "none"), want: os.ErrNotExist},
	} {
		o := natsaccess.Options{URL: s.ClientURL(), User: c.user, Token: c.token,
			TLS: httpaccess.TLS{CA: c.ca}}
		if c.user != "" {
			o.Password = "secret"
		}
		conn, err := o.Connect("test", false, slog.New(slog.DiscardHandler))
		if conn != nil {
			conn.Close()
		}
		_, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
		if _, want := c.want.(x509.UnknownAuthorityError); want != isUnknown ||
			!want && !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
