package httpsink

import (
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

const patience = 20 * time.Second

// lineCodec sends records as they were read.
type lineCodec struct{}

func (lineCodec) Format() Format { return Format{ContentType: "text/plain", Raw: true} }

func (lineCodec) Append(dst []byte, b *stream.Batch, _ func(int, error)) []byte {
	return b.AppendRaw(dst)
}

func (lineCodec) Outcome(_ *stream.Batch, r *Response) error { return r.Err }

func defaults() *Options {
	o := DefaultOptions()
	return &o
}

// fixture is an open sink and the lists of lanes that it has set.
type fixture struct {
	t       *testing.T
	sink    *Sink
	changes chan []stream.Lane
}

func openLanes(t *testing.T, o *Options) *fixture {
	t.Helper()
	h := streamtest.NewHost(t)
	sink, err := New(*o, lineCodec{}, h)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, sink: sink, changes: make(chan []stream.Lane, 100)}
	if err := sink.Open(t.Context(), stream.SinkOptions{Lanes: func(l []stream.Lane) {
		f.changes <- l
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.Stop()
		_ = sink.Close()
	})
	return f
}

// next waits for a change of the lanes and returns their names.
func (f *fixture) next() (names []string, lanes []stream.Lane) {
	f.t.Helper()
	select {
	case lanes = <-f.changes:
	case <-time.After(patience):
		f.t.Fatal("the lanes did not change")
	}
	for _, l := range lanes {
		names = append(names, l.Name)
	}
	return names, lanes
}

func (f *fixture) want(names ...string) {
	f.t.Helper()
	if got, _ := f.next(); !slices.Equal(got, names) {
		f.t.Fatalf("the lanes are %q, want %q", got, names)
	}
}

func discovering(dns *connectortest.NameServer, endpoints ...Endpoint) *Options {
	o := defaults()
	o.Endpoints, o.Discovery.Resolver = endpoints, dns.Addr()
	o.Discovery.Interval = 100 * time.Millisecond
	return o
}

// TestDiscovered checks that each address of a name is a lane. Lanes follow changes of the
// addresses, and do not change while lookups fail.
func TestDiscovered(t *testing.T) {
	dns := connectortest.NewNameServer(t)
	dns.Set("workers.test", "127.0.0.2", "127.0.0.1", "::1")
	f := openLanes(t, discovering(dns, Endpoint{URL: "http://fixed.test:80/in"},
		Endpoint{DNS: "workers.test", Port: 8080, Path: "in"}))
	const fixed = "http://fixed.test:80/in"
	f.want(fixed, "http://127.0.0.1:8080/in", "http://127.0.0.2:8080/in", "http://[::1]:8080/in")
	dns.Set("workers.test", "127.0.0.2", "127.0.0.3")
	changed := []string{fixed, "http://127.0.0.2:8080/in", "http://127.0.0.3:8080/in"}
	// A lookup sends one query for IPv4 and one for IPv6 addresses. If the addresses change between
	// the two answers, the lookup finds a mixture of old and new addresses. So one list with other
	// lanes may come before the list changed.
	for got := []string(nil); !slices.Equal(got, changed); {
		if got, _ = f.next(); got[0] != fixed {
			t.Fatalf("the lanes are %q, want %q first", got, fixed)
		}
	}
	dns.Fail(true)
	before := f.lookups()
	for deadline := time.Now().Add(patience); f.lookups() < before+3; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the sink does not look names up")
		}
	}
	dns.Set("workers.test", "127.0.0.2")
	dns.Fail(false)
	f.want(fixed, "http://127.0.0.2:8080/in") // and no other change between
}

// lookups returns the number of completed lookups, failed ones included.
func (f *fixture) lookups() int64 { return f.counted("lookups") }

func (f *fixture) counted(name string) int64 { return f.sink.host.(*streamtest.Host).Counted(name) }

// TestDiscoveredLater checks that a name may have no addresses at first, and that workers listed in
// SRV records get the ports of these records.
func TestDiscoveredLater(t *testing.T) {
	dns := connectortest.NewNameServer(t)
	f := openLanes(t, discovering(dns, Endpoint{SRV: "_in._tcp.workers.test", Scheme: "https"}))
	f.want()
	dns.Set("a.test", "127.0.0.1")
	dns.Set("b.test", "127.0.0.1", "127.0.0.2")
	dns.Serve("_in._tcp.workers.test", net.SRV{Target: "a.test", Port: 8001},
		net.SRV{Target: "b.test", Port: 8002})
	all := []string{"https://127.0.0.1:8001/", "https://127.0.0.1:8002/", "https://127.0.0.2:8002/"}
	f.want(all...)
	// While the lookup of one SRV target fails, its workers must stay, and those of the other
	// target must change. The lookup must count as failed.
	failed := f.counted("lookups_failed")
	dns.FailName("b.test", true)
	dns.Set("a.test", "127.0.0.1", "127.0.0.3")
	f.want(append(all, "https://127.0.0.3:8001/")...)
	if f.counted("lookups_failed") == failed {
		t.Error("a lookup without the addresses of one target does not count as failed")
	}
	dns.FailName("b.test", false)
	dns.Set("b.test")
	f.want(all[0], "https://127.0.0.3:8001/")
}

// TestDiscoveredIsDialed checks that a request to a worker found by DNS goes to the worker's
// address, and that its Host header has the DNS name.
func TestDiscoveredIsDialed(t *testing.T) {
	hosts := make(chan string, 1)
	server := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter,
		r *nethttp.Request) {
		hosts <- r.Host
	}))
	t.Cleanup(server.Close)
	at := netip.MustParseAddrPort(server.Listener.Addr().String())
	dns := connectortest.NewNameServer(t)
	dns.Set("workers.test", at.Addr().String())
	f := openLanes(t, discovering(dns, Endpoint{DNS: "workers.test", Port: int(at.Port())}))
	_, lanes := f.next()
	deliver(t, lanes[0])
	if got, want := <-hosts, "workers.test:"; !strings.HasPrefix(got, want) {
		t.Errorf("the request is for host %q, want %s and the port", got, want)
	}
}

func deliver(t *testing.T, l stream.Lane) {
	t.Helper()
	if _, err := l.Worker.Deliver(t.Context(),
		stream.Attempt{Value: streamtest.Lines("a")}); err != nil {
		t.Fatal(err)
	}
}

// TestDrainingWorker checks that a worker that reports that it drains gets no further batches, and
// becomes a lane again after drainPause.
func TestDrainingWorker(t *testing.T) {
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter,
		_ *nethttp.Request) {
		w.Header().Set(stream.CreditHeader, "epoch=3; state=draining")
	}))
	t.Cleanup(server.Close)
	o := defaults()
	o.Endpoints = []Endpoint{{URL: server.URL}, {URL: "http://other.test/in"}}
	f := openLanes(t, o)
	first, lanes := f.next()
	deliver(t, lanes[0])
	deliver(t, lanes[0]) // a batch that was already in flight
	f.want("http://other.test/in")
	f.sink.lanes.publish(time.Now().Add(2 * drainPause))
	f.want(first...)
}

// TestConnectionAge checks that connections are replaced after connection_age.
func TestConnectionAge(t *testing.T) {
	var mu sync.Mutex
	ports := make(map[string]bool)
	server := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter,
		r *nethttp.Request) {
		mu.Lock()
		defer mu.Unlock()
		ports[r.RemoteAddr] = true
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct {
		age  time.Duration
		want int
	}{{time.Nanosecond, 3}, {time.Hour, 1}, {0, 1}} {
		o := defaults()
		o.Endpoints, o.ConnectionAge = []Endpoint{{URL: server.URL}}, c.age
		_, lanes := openLanes(t, o).next()
		clear(ports)
		for range 3 {
			deliver(t, lanes[0])
		}
		if len(ports) != c.want {
			t.Errorf("age %v: 3 requests over %d connections, want %d", c.age, len(ports), c.want)
		}
	}
}

func TestEndpointOptions(t *testing.T) {
	for _, c := range []struct {
		want string
		e    Endpoint
	}{
		{"endpoint 1: write one of a URL, dns, srv and nats", Endpoint{}},
		{"write one of a URL, dns, srv and nats", Endpoint{DNS: "a", SRV: "b", Port: 1}},
		{"port, scheme and path need dns", Endpoint{URL: "http://a", Port: 1}},
		{"dns needs the port", Endpoint{DNS: "a"}},
		{`"99999" is not a port`, Endpoint{URL: "http://a:99999"}},
		{"the records of srv have the port", Endpoint{SRV: "a", Port: 1}},
	} {
		o := defaults()
		o.Endpoints = []Endpoint{c.e}
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.e, err, c.want)
		}
	}
	for want, d := range map[string]DiscoveryOptions{
		"write 100ms to 1h": {Interval: time.Millisecond},
		"is not HOST:PORT":  {Interval: time.Second, Resolver: "10.0.0.1"},
	} {
		o := defaults()
		o.Endpoints, o.Discovery = []Endpoint{{URL: "http://a"}}, d
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", d, err, want)
		}
	}
}
