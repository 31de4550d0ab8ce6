package tlsaccess

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority returns a new certificate in PEM.
func authority(t *testing.T, serial int64) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestTrustFollowsItsFile checks that a changed file of authorities is read again. While the file
// cannot be used, the old authorities must stay in use.
func TestTrustFollowsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	write := func(text []byte, age time.Duration) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(authority(t, 1), 3*time.Hour)
	o := &TLS{CA: path, ServerName: "broker"}
	trust, err := NewTrust(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	first := trust.Current()
	if first.ServerName != "broker" || trust.Current() != first {
		t.Error("an unchanged file gives another configuration")
	}
	write([]byte("no certificate"), 2*time.Hour)
	if trust.Current() != first {
		t.Error("a file without a certificate replaced the authorities")
	}
	write(authority(t, 2), time.Hour)
	if second := trust.Current(); second.RootCAs.Equal(first.RootCAs) {
		t.Error("the changed file was not read")
	}
}

// TestRefusedOptions checks the error messages for missing options and for files without a
// certificate.
func TestRefusedOptions(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		o    TLS
		want string
	}{
		{TLS{Cert: "a"}, "tls.key: is missing: add the key of tls.cert"},
		{TLS{Key: "a"}, "tls.cert: is missing: add the certificate of tls.key"},
		{TLS{CA: empty}, "tls.ca: " + empty + " has no certificate in PEM"},
		{TLS{Cert: empty, Key: empty}, "tls.cert: tls: failed to find any PEM data in " +
			"certificate input"},
	} {
		if err := c.o.Read(); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}
