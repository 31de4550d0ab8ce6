package endtoend

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// TestPushMemory checks that http_server needs at most a certain amount of memory with 10,000
// connections: before they have sent anything, after a request on each, and with TLS.
func TestPushMemory(t *testing.T) {
	if os.Getenv("PENSTOCK_PUSH") == "" {
		t.Skip("run by make push-bench")
	}
	t.Run("plain", func(t *testing.T) {
		pushMemory(t, "", func(c net.Conn) net.Conn { return c }, 128, 320)
	})
	t.Run("TLS", func(t *testing.T) {
		cert, key := certificateFiles(t)
		o := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} // its own server
		client := func(c net.Conn) net.Conn { return tls.Client(c, o) }
		pushMemory(t, fmt.Sprintf(", tls: {cert: %s, key: %s}", cert, key), client, 480, 480)
	})
}

// pushMemory checks the resident memory of a source http_server. options is the text of more
// options. idle is the bound in MiB for connections that have sent nothing, and used is the bound
// after a request on each connection. The function client wraps a connection, for example with TLS.
func pushMemory(t *testing.T, options string, client func(net.Conn) net.Conn, idle, used float64) {
	const conns = 10_000
	address := connectortest.FreeAddress(t)
	const source = "{ http_server: { listen: %q, idle_timeout: 10m, header_timeout: 10m%s } }"
	m := startPush(t, fmt.Sprintf(source, address, options), "off")
	awaitListener(t, address)
	all := make([]net.Conn, conns)
	for i := range all {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all[i] = client(conn)
	}
	<-time.After(time.Second) // until the last connections are accepted
	before := residentOf(t, m.cmd.Process.Pid)
	reply := make([]byte, 4096)
	const request = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nhello\n"
	for _, conn := range all {
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(reply); err != nil || !bytes.HasPrefix(reply, []byte("HTTP/1.1 200")) {
			t.Fatalf("%.40q, %v", reply, err)
		}
	}
	after := residentOf(t, m.cmd.Process.Pid)
	t.Logf("%d connections: %.0f MiB idle, %.0f MiB after a request each", conns, before, after)
	if before > idle || after > used {
		t.Errorf("want at most %.0f MiB and %.0f MiB", idle, used)
	}
}

// certificateFiles writes a certificate and its key to files, and returns their paths.
func certificateFiles(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, kind string, data []byte) string {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
		return write(t, filepath.Join(t.TempDir(), name), string(text))
	}
	return file("cert.pem", "CERTIFICATE", der), file("key.pem", "PRIVATE KEY", raw)
}

// residentOf returns the resident memory of a process in MiB.
func residentOf(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
