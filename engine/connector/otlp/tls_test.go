package otlp_test

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
	"os"
	"path/filepath"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// selfSigned writes a certificate, valid for client and server, and its key. It returns the paths.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", pkcs)
}

// TestMutualTLS checks that clients need a certificate of the right authority.
func TestMutualTLS(t *testing.T) {
	cert, key := selfSigned(t)
	otherCert, otherKey := selfSigned(t)
	s := run(t, fmt.Sprintf("tls: {cert: %q, key: %q, client_ca: %q}", cert, key, cert), false)
	authority, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	for _, c := range []struct {
		cert, key string
		ok        bool
	}{{"", "", false}, {otherCert, otherKey, false}, {cert, key, true}} {
		config := &tls.Config{RootCAs: roots}
		if c.cert != "" {
			pair, err := tls.LoadX509KeyPair(c.cert, c.key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		conn := s.connect(t, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		_, err := collector.NewLogsServiceClient(conn).Export(within(t), request("one"))
		if (err == nil) != c.ok {
			t.Errorf("certificate %q: %v", c.cert, err)
		}
	}
	if got := s.records(); len(got) != 1 {
		t.Errorf("arrived %q", got)
	}
}
