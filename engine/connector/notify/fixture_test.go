package notify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/egress"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// merchants are receivers in memory. The path of a request is its order.
type merchants struct {
	// n is the number of earlier attempts of this order
	respond func(r *nethttp.Request, n int) (status int, body string, takes time.Duration)

	mu       sync.Mutex
	start    time.Time
	attempts map[string][]time.Duration // by order, relative to start
	requests []*nethttp.Request
	open     map[string]int // by host
	most     map[string]int
}

func (m *merchants) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	order := strings.TrimPrefix(r.URL.Path, "/")
	m.mu.Lock()
	n := len(m.attempts[order])
	m.attempts[order] = append(m.attempts[order], time.Since(m.start))
	m.requests = append(m.requests, r)
	m.open[r.URL.Host]++
	m.most[r.URL.Host] = max(m.most[r.URL.Host], m.open[r.URL.Host])
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.open[r.URL.Host]--
	}()
	status, body, takes := m.respond(r, n)
	if takes > 0 { // concurrent time.After(0) in a bubble can crash the race detector (Go 1.26)
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
	if status == 0 {
		return nil, fmt.Errorf("connection refused")
	}
	res := &nethttp.Response{
		StatusCode: status,
		Header:     nethttp.Header{},
		Body:       io.NopCloser(bytes.NewReader([]byte(body))),
	}
	if after, ok := strings.CutPrefix(body, "retry-after "); ok {
		res.Header.Set("Retry-After", after)
	}
	if at, ok := strings.CutPrefix(body, "location "); ok {
		res.Header.Set("Location", at)
	}
	return res, nil
}

func (m *merchants) of(order string) []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.attempts[order])
}

func (m *merchants) total(prefix string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for order, at := range m.attempts {
		if strings.HasPrefix(order, prefix) {
			n += len(at)
		}
	}
	return n
}

// fixture is a sink that delivers to merchants.
type fixture struct {
	*Sink
	t       *testing.T
	host    *streamtest.Quiet
	m       *merchants
	dir     string
	mu      sync.Mutex // guards letters against concurrent attempts
	letters []stream.DeadLetter
	stuck   atomic.Bool // if set, no checkpoint is synced
	lane    stream.Lane
	next    int64
}

// options returns options that send each line "HOST ORDER" to https://HOST.shops.example/ORDER.
func options() *Options {
	o := DefaultOptions()
	o.URL = `"https://" + split(message, " ")[0] + ".shops.example/" + split(message, " ")[1]`
	o.IdempotencyKey = `split(message, " ")[1]`
	o.Allow = egress.Policy{Hosts: []string{"*.shops.example"}}
	o.Accept = `status == 200 and trim(body) == "success"`
	return o
}

func newMerchants(respond func(*nethttp.Request, int) (int, string, time.Duration)) *merchants {
	return &merchants{
		respond:  respond,
		start:    time.Now(),
		attempts: map[string][]time.Duration{},
		open:     map[string]int{},
		most:     map[string]int{},
	}
}

// newFixture opens a sink with the given state directory. If m is nil, it uses the network.
func newFixture(t *testing.T, dir string, o *Options, m *merchants, once bool) *fixture {
	t.Helper()
	if m == nil {
		return openFixture(t, dir, o, nil, nil, once)
	}
	return openFixture(t, dir, o, m, m, once)
}

// openFixture is newFixture with any transport. A nil transport is the network.
func openFixture(t *testing.T, dir string, o *Options, m *merchants,
	transport nethttp.RoundTripper, once bool) *fixture {
	t.Helper()
	f := &fixture{
		t:    t,
		host: streamtest.NewQuiet(vfs.OS(), t.Output(), func(string) bool { return true }),
		m:    m,
		dir:  dir,
	}
	made, err := New(*o, f.host)
	if err != nil {
		t.Fatal(err)
	}
	f.Sink = made
	if f.refresh = time.Minute; transport != nil { // many refreshes in virtual hours are slow
		f.transport = transport
	}
	err = f.Open(t.Context(), stream.SinkOptions{
		Pipeline: "p", Route: "r", Once: once, Lanes: func(l []stream.Lane) { f.lane = l[0] },
		StateDir: func() (string, error) { return dir, nil },
		Synced: func() time.Time {
			if f.stuck.Load() {
				return time.Time{}
			}
			return time.Now()
		},
		DeadLetter: func(_ context.Context, letters []stream.DeadLetter) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.letters = append(f.letters, letters...)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// stop stops the sink, like the end of a process.
func (f *fixture) stop() {
	f.t.Helper()
	f.host.Stop()
	if err := f.Close(); err != nil {
		f.t.Error(err)
	}
}

// deliver parks the lines.
func (f *fixture) deliver(lines ...string) error {
	f.t.Helper()
	b := streamtest.Lines(lines...)
	b.Spans[0].Part = &stream.Partition{ID: fmt.Sprintf("f-%d", f.next), Name: "orders.log"}
	f.next++
	if _, err := f.Encode(nil, b); err != nil {
		f.t.Fatal(err)
	}
	_, err := f.lane.Worker.Deliver(f.t.Context(), stream.Attempt{Value: b})
	return err
}

// bubble runs a test in virtual time. The directory outlives the bubble.
func bubble(t *testing.T, run func(t *testing.T, dir string)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { run(t, dir) })
}

func refuse(*nethttp.Request, int) (int, string, time.Duration) { return 200, "fail", 0 }
