package listen

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// selfSigned returns a certificate and its key in PEM.
func selfSigned(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// TestCertificatesLoadedLater checks that changed certificates are loaded as soon as they can be
// read, even if their size and time of modification stay the same, as after a change of their
// permissions. Until then, the old certificates are used, and the error is logged once.
func TestCertificatesLoadedLater(t *testing.T) {
	synctest.Test(t, testCertificatesLoadedLater)
}

func testCertificatesLoadedLater(t *testing.T) {
	dir := t.TempDir()
	files := &TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	changed := time.Now().Add(-time.Hour)
	write := func(cert, key []byte) {
		t.Helper()
		for path, text := range map[string][]byte{files.Cert: cert, files.Key: key} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, changed, changed); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(selfSigned(t))
	var log bytes.Buffer
	config, err := files.Config(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	current := func() []byte {
		t.Helper()
		time.Sleep(lookEvery)
		c, err := config.GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Certificates[0].Certificate[0]
	}
	old := current()
	cert, key := selfSigned(t)
	changed = changed.Add(time.Minute)
	write(bytes.Repeat([]byte("x"), len(cert)), key) // cannot be loaded
	for range 3 {
		if got := current(); !bytes.Equal(got, old) {
			t.Error("invalid files have replaced the certificate")
		}
	}
	if n := strings.Count(log.String(), "invalid"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log.String())
	}
	write(cert, key)
	block, _ := pem.Decode(cert)
	if got := current(); !bytes.Equal(got, block.Bytes) {
		t.Error("the certificate was not loaded")
	}
}
