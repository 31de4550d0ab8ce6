package http_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	mathbig "math/big"
	nethttp "net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// otherAuthority returns, as a PEM block, the certificate of an authority that has signed no
// certificates of the test's servers.
func otherAuthority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: mathbig.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestAuthoritiesAreReread checks that a change of tls.ca applies from the next request on, even on
// kept connections. An unusable file changes nothing.
func TestAuthoritiesAreReread(t *testing.T) {
	for _, w := range []way{{name: "TLS", tls: true}, {name: "HTTP/2", tls: true}} {
		t.Run(w.name, func(t *testing.T) {
			url := w.handling(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
			})
			_, right := certified()
			wrong := otherAuthority(t)
			file := filepath.Join(t.TempDir(), "ca.pem")
			write := func(content []byte) {
				t.Helper()
				next := file + ".next"
				if err := errors.Join(os.WriteFile(next, content, 0o600), os.Rename(next, file)); err != nil {
					t.Fatal(err)
				}
			}
			write(wrong)
			lane := rawTo(t, url, func(o *http.Options) { o.TLS.CA = file })
			for i, step := range []struct {
				change func()
				trusts bool
			}{
				{func() {}, false},
				{func() { write(right) }, true},
				{func() { write([]byte("no certificate")) }, true},
				{func() { os.Remove(file) }, true},
				{func() { write(append(slices.Clone(wrong), right...)) }, true},
				{func() { write(wrong) }, false},
			} {
				step.change()
				err := deliver(t.Context(), lane, lines(new(stream.Pool), 1, 10))
				if (err == nil) != step.trusts || err != nil && !is[*stream.Misconfigured](err) {
					t.Errorf("step %d: Deliver: %v, trusts the receiver: %v", i, err, step.trusts)
				}
			}
		})
	}
}

func TestMissingAuthoritiesAreAnError(t *testing.T) {
	o := http.DefaultOptions()
	o.Endpoints = []httpsink.Endpoint{{URL: "https://h/"}}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{filepath.Join(t.TempDir(),
		"none.pem"): "no such file", empty: "has no certificate"} {
		o.TLS.CA = file
		err := o.Validate()
		if wrong, ok := errors.AsType[*stream.OptionError](err); !ok || wrong.Key != "tls.ca" ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("Validate with tls.ca %s: %v", file, err)
		}
	}
}

// proxyChild is the environment variable of the child process that TestProxyOfTheEnvironment starts
// for each case. A process of its own is needed because net/http reads the proxy variables only
// once per process.
const proxyChild = "PENSTOCK_TEST_PROXY_CHILD"

// TestProxyOfTheEnvironment checks that the sink uses the proxy of the environment by default, but
// never for a loopback address.
func TestProxyOfTheEnvironment(t *testing.T) {
	if os.Getenv(proxyChild) != "" {
		testProxyInChild(t)
		return
	}
	var mu sync.Mutex
	var hosts []string
	proxy := answering(t, func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		mu.Lock()
		defer mu.Unlock()
		hosts = append(hosts, r.Host)
	})
	direct := answering(t, func(nethttp.ResponseWriter, *nethttp.Request) {})
	runChild(t, "proxy", "HTTP_PROXY="+strings.Replace(proxy, "://", "://me:hunter2@", 1),
		"NO_PROXY=direct.invalid", "DIRECT="+direct)
	mu.Lock()
	defer mu.Unlock()
	if len(hosts) != 1 || hosts[0] != "receiver.invalid" {
		t.Errorf("the proxy saw requests to %q, want one to receiver.invalid", hosts)
	}
	runChild(t, "wrong", "HTTP_PROXY=http://me:hunter2@%zz", "NO_PROXY=", "DIRECT="+direct)
}

func runChild(t *testing.T, what string, env ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestProxyOfTheEnvironment$", "-test.v")
	c.Env = append(os.Environ(), append(env, proxyChild+"="+what, "http_proxy=", "no_proxy=", "REQUEST_METHOD=")...)
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("child %q: %v\n%s", what, err, out)
	}
}

func testProxyInChild(t *testing.T) {
	o := http.DefaultOptions()
	o.Endpoints = []httpsink.Endpoint{
		{URL: "http://receiver.invalid/in"}, {URL: "http://direct.invalid/in"}, {URL: os.Getenv("DIRECT")},
		{URL: "http://localhost/"},
	}
	if os.Getenv(proxyChild) == "wrong" {
		err := o.Validate()
		wrong, ok := errors.AsType[*stream.OptionError](err)
		if !ok || wrong.Key != "proxy" || strings.Contains(err.Error(), "hunter2") ||
			strings.Contains(err.Error(), "me:") {
			t.Errorf("Validate: %v", err)
		}
		return
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	got := o.FromEnvironment()
	if len(got) != 1 || !strings.HasPrefix(got[0], "http://receiver.invalid/in through proxy http://***@127.0.0.1:") {
		t.Errorf("FromEnvironment() = %q", got)
	}
	for _, url := range []string{"http://receiver.invalid/in", os.Getenv("DIRECT")} {
		if err := deliver(t.Context(), rawTo(t, url, nil), lines(new(stream.Pool), 1, 10)); err != nil {
			t.Errorf("Deliver to %s: %v", url, err)
		}
	}
	none := rawTo(t, "http://receiver.invalid/in", func(o *http.Options) { o.Proxy = "none" })
	if err := deliver(t.Context(), none, lines(new(stream.Pool), 1, 10)); err == nil {
		t.Error("with proxy: none a request went through the proxy")
	}
}
