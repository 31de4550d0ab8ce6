package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var shops = Policy{Hosts: []string{"pay.example.com", "*.shops.example", "8.8.8.8", "127.0.0.1", "::1", "fe80::1"}}

// TestTricks checks that disguised addresses are refused before a packet is sent.
func TestTricks(t *testing.T) {
	for _, raw := range []string{
		"https://127.0.0.2/", "https://localhost/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/",
		"https://127.1/",
		"https://127.0.1/", "https://0/", "https://a.shops.example.0x7f/",
		"https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/",
		"https://[0:0:0:0:0:ffff:127.0.0.1]/", "https://[::127.0.0.1]/",
		"https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/",
		"https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/",
		"https://169.254.169.254/latest/meta-data/", "https://[fd00:ec2::254]/",
		"https://metadata.google.internal/", "https://pay.example.com@evil.example/",
		"https://evil.example#@pay.example.com/",
		"https://user:password@pay.example.com/", "https://user:password@pay.example.com/a b",
		"https://user:password@pay.example.com/" + strings.Repeat("a", maxURL),
		"https://pay.example.com.evil.example/", "https://evilshops.example/",
		"https://shops.example/",
		"https://.shops.example/", "https://a..shops.example/", "https://pay.example.com./",
		"https://pay.example.com:22/",
		"https://pay.example.com:0443/", "https://pay.example.com:/",
		"https://pay.example.com:443443/", "http://pay.example.com/",
		"http://pay.example.com:443/", "ftp://pay.example.com/", "file:///etc/passwd",
		"gopher://pay.example.com/_x", "https:pay.example.com",
		"//pay.example.com/", "https://pay.example.com\\@evil.example/", "https://evil.example\\.shops.example/",
		"https://pay.example.com/\r\nHost: evil", "https://pay.example.com/a b",
		"https://pay。example。com/", "https://ⓟay.example.com/",
		"https://%70ay.example.org/", "https://[::1]:8443/", "https:///path", "https://", "",
		"https://*.shops.example/",
	} {
		u, address, err := shops.Check(raw)
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("%q: %v, %v, %v; want a refusal", raw, u, address, err)
			continue
		}
		if strings.Contains(err.Error(), "password") {
			t.Errorf("%q: the error shows the password: %v", raw, err)
		}
	}
	for raw, want := range map[string]string{
		"https://pay.example.com/paid?order=1#x": "https://pay.example.com/paid?order=1 pay.example.com:443",
		"https://PAY.Example.com:443":            "https://pay.example.com pay.example.com:443",
		"https://a.b.shops.example/":             "https://a.b.shops.example/ a.b.shops.example:443",
		"https://8.8.8.8/":                       "https://8.8.8.8/ 8.8.8.8:443",
	} {
		u, address, err := shops.Check(raw)
		if err != nil || u.String()+" "+address != want {
			t.Errorf("%q: %v, %v, %v; want %s", raw, u, address, err, want)
		}
	}
}

// TestAddresses checks that forbidden addresses are refused after a name was resolved.
func TestAddresses(t *testing.T) {
	strict, inside := Policy{}, Policy{Private: true}
	for text, withPrivate := range map[string]bool{
		"0.0.0.0": false, "0.1.2.3": false, "10.1.2.3": true, "100.64.0.1": true, "100.100.100.200": false,
		"127.0.0.1": true, "127.255.255.254": true,
		"169.254.169.254": false, "172.16.0.1": true, "172.31.255.255": true, "192.0.0.192": false, "192.0.2.1": false,
		"192.88.99.1": false,
		"192.168.1.1": true, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false,
		"224.0.0.1": false, "240.0.0.1": false,
		"255.255.255.255": false, "168.63.129.16": false, "::": false, "::1": true,
		"::ffff:10.0.0.1": false, "::ffff:8.8.8.8": false,
		"::7f00:1": false, "64:ff9b::a00:1": false, "64:ff9b:1::1": false, "100::1": false,
		"2001::1": false, "2001:20::1": false,
		"2001:db8::1": false, "2002:a00:1::": false, "3fff::1": false, "5f00::1": false,
		"fc00::1": true, "fd12::1": true,
		"fd00:ec2::254": false,
		"fd20:ce::254":  false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "ff02::1": false,
	} {
		a := netip.MustParseAddr(text)
		if strict.CheckAddress(a) == nil {
			t.Errorf("%s is allowed", text)
		}
		if allowed := inside.CheckAddress(a) == nil; allowed != withPrivate {
			t.Errorf("%s with private: true: allowed %v, want %v", text, allowed, withPrivate)
		}
	}
	for _, text := range []string{"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1",
		"2606:4700::1111", "2a00:1450::1"} {
		if err := strict.CheckAddress(netip.MustParseAddr(text)); err != nil {
			t.Error(err)
		}
	}
}

// resolver is a name server on loopback. It answers the nth question for an IPv4 address with the
// nth address. When all addresses were used, it repeats the last one.
func resolver(t *testing.T, answers ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var asked atomic.Int32
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(respond(buf[:n], func() netip.Addr {
				return netip.MustParseAddr(answers[min(int(asked.Add(1))-1, len(answers)-1)])
			}), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// respond makes the response to a question of one name.
func respond(q []byte, address func() netip.Addr) []byte {
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	out := append([]byte{}, q[:end]...)
	binary.BigEndian.PutUint16(out[2:], 0x8180)
	clear(out[6:12])
	if binary.BigEndian.Uint16(q[end-4:]) == 1 { // A
		binary.BigEndian.PutUint16(out[6:], 1)
		a := address().As4()
		out = append(out, 0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, a[:]...)
	}
	return out
}

var errStopped = errors.New("the test lets nothing out")

// TestRebinding checks that each dialed address is checked. A name that resolves first to a public
// address and then to loopback must be refused.
func TestRebinding(t *testing.T) {
	var allowed []string
	d := Dialer{
		Policy: &shops, Timeout: 5 * time.Second,
		Resolver: resolver(t, "8.8.4.4", "127.0.0.1", "169.254.169.254", "10.0.0.1"),
		allowed:  func(a netip.AddrPort) error { allowed = append(allowed, a.String()); return errStopped },
	}
	for i, want := range []string{"stopped", "refused", "refused", "refused"} {
		_, err := d.DialContext(t.Context(), "tcp", "pay.example.com:443")
		var refused *RefusedError
		if isRefused := errors.As(err, &refused); want == "refused" && !isRefused ||
			want == "stopped" && !errors.Is(err, errStopped) {
			t.Errorf("dial %d: %v, want %s", i, err, want)
		}
	}
	if len(allowed) != 1 || allowed[0] != "8.8.4.4:443" {
		t.Errorf("allowed %v", allowed)
	}
}

// TestTransport checks that a server on loopback gets a request only with private: true, and that
// no proxy is used.
func TestTransport(t *testing.T) {
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	defer server.Close()
	t.Setenv("HTTP_PROXY", server.URL)
	for _, inside := range []bool{false, true} {
		d := Dialer{Policy: &Policy{Private: inside}, Timeout: 5 * time.Second}
		d.Resolver = resolver(t, "127.0.0.1")
		transport := NewTransport(&d, TransportOptions{})
		target := strings.Replace(server.URL, "127.0.0.1", "pay.example.com", 1)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err == nil {
			err = res.Body.Close()
		}
		if got := err == nil; got != inside {
			t.Errorf("private: %v: %v", inside, err)
		}
		transport.CloseIdleConnections()
	}
	if requests != 1 {
		t.Errorf("%d requests arrived, want 1", requests)
	}
}

func TestValidate(t *testing.T) {
	for _, p := range []Policy{
		{}, {Hosts: []string{"*"}}, {Hosts: []string{"*.com"}}, {Hosts: []string{"a/b"}}, {Hosts: []string{""}},
		{Hosts: []string{"fe80::1%1"}},
		{Hosts: []string{"a.example"}, Ports: []int{0}}, {Hosts: []string{"a.*.example"}},
	} {
		if p.Validate() == nil {
			t.Errorf("%+v is valid", p)
		}
	}
	if err := shops.Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzCheck(f *testing.F) {
	for _, raw := range []string{"https://pay.example.com/", "https://[::1]/", "https://a@b", "http://x:1"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, address, err := shops.Check(raw)
		if err != nil {
			return
		}
		again, same, err := shops.Check(u.String())
		if err != nil || same != address || again.String() != u.String() {
			t.Errorf("%q is allowed as %v at %s, and that is %v at %s, %v", raw, u, address, again, same, err)
		}
		host := u.Hostname()
		if host != "pay.example.com" && !strings.HasSuffix(host, ".shops.example") &&
			netip.MustParseAddr(host).String() != host {
			t.Errorf("%q is allowed for host %q", raw, host)
		}
	})
}

// TestReasons checks that a refusal names the mistake in URLs that records often have.
func TestReasons(t *testing.T) {
	for raw, want := range map[string]string{
		"":                         "it is empty",
		"http://pay.example.com/":  "http: true in the option allow",
		"ftp://pay.example.com/":   "the scheme is not https",
		"https://a@shops.example/": "it holds a user",
	} {
		if _, _, err := shops.Check(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", raw, err, want)
		}
	}
}
