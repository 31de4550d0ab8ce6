package httpserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// issue returns a certificate in PEM with its key. If parent is nil, the certificate is
// self-signed.
func issue(t *testing.T, name string, parent *authority) (*authority, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: parent == nil, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signer, signerKey := template, key
	if parent != nil {
		signer, signerKey = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{cert, key, certPEM}, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

func file(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMutualTLS checks that clients need a certificate, and that its name identifies the client for
// idempotency keys.
func TestMutualTLS(t *testing.T) {
	dir := t.TempDir()
	ca, _ := issue(t, "authority", nil)
	server, serverKey := issue(t, "server", ca)
	client, clientKey := issue(t, "client", ca)
	s := run(t, fmt.Sprintf("format: lines, tls: {cert: %q, key: %q, client_ca: %q}",
		file(t, dir, "server.pem", server.pem), file(t, dir, "server.key", serverKey), file(t, dir, "ca.pem", ca.pem)))
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	pair, err := tls.X509KeyPair(client.pem, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		certs []tls.Certificate
		ok    bool
	}{{nil, false}, {[]tls.Certificate{pair}, true}} {
		transport := &nethttp.Transport{TLSClientConfig: &tls.Config{RootCAs: roots,
			Certificates: c.certs}, ForceAttemptHTTP2: true}
		s.client = &nethttp.Client{Timeout: patience, Transport: transport}
		a, err := s.try("/", strings.NewReader("x"))
		if (err == nil && a.status == 200) != c.ok {
			t.Errorf("with %d certificates: %d %s, %v", len(c.certs), a.status, a.body, err)
		}
		transport.CloseIdleConnections()
	}
	if got := s.records(); len(got) != 1 {
		t.Errorf("arrived %q", got)
	}
}
