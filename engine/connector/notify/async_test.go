package notify

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/egress"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// asyncOptions returns options with polling of operations.
func asyncOptions() *Options {
	o := options()
	o.Async.Location = `headers.location`
	o.Async.Done = `status == 200 and fromJSON(body).state == "SUCCESS"`
	o.Async.Failed = `status == 200 and fromJSON(body).state == "FAILED"`
	return o
}

const (
	running   = `{"state":"RUNNING"}`
	succeeded = `{"state":"SUCCESS"}`
	failed    = `{"state":"FAILED"}`
)

// TestAsyncHour checks an operation that succeeds after 59 minutes, and one that would take 2 hours
// and is dead-lettered after an hour. The sink polls an operation on the polling schedule, parks it
// between polls, and sends its request once.
func TestAsyncHour(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  stream.ParkedCounts
	}{
		"59 minutes": {59 * time.Minute, stream.ParkedCounts{Delivered: 1}},
		"too long":   {2 * time.Hour, stream.ParkedCounts{Dead: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				m := newMerchants(nil)
				m.respond = func(r *nethttp.Request, _ int) (int, string, time.Duration) {
					switch {
					case r.Method == nethttp.MethodPost:
						return 202, "location /operations/order-1?token=secret", 0
					case time.Since(m.start) < c.takes:
						return 200, running, 0
					}
					return 200, succeeded, 0
				}
				f := newFixture(t, dir, asyncOptions(), m, false)
				defer f.stop()
				if err := f.deliver("m1 order-1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				d, err := f.Deliveries().Delivery(t.Context(), "order-1")
				if err != nil || d.State != "waiting" || d.Operation == nil ||
					d.Operation.Polls != 4 ||
					d.Next.IsZero() ||
					d.Operation.Location != "https://m1.shops.example/operations/order-1" {
					t.Errorf(
						"after 30s the delivery is %+v, operation %+v, %v", d, d.Operation, err,
					)
				}
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if got := f.Parked(); got != c.want {
					t.Errorf("counts %+v, want %+v", got, c.want)
				}
				wantPolled(t, m, c.takes)
				d, err = f.Deliveries().Delivery(t.Context(), "order-1")
				if err != nil || len(d.Attempts) != 3 {
					t.Errorf(
						"history %+v, %v; want the request, the first poll and the last",
						d.Attempts, err,
					)
				}
				const reason = "the receiver's operation has not ended in time"
				if c.want.Dead > 0 && (len(f.letters) != 1 || f.letters[0].Reason != reason ||
					f.letters[0].Attempts != 1) {
					t.Errorf("dead letters %+v", f.letters)
				}
			})
		})
	}
}

// wantPolled checks that order-1 was sent once, and polled after 1, 3, 7, 15, 31 and 63 s and every
// minute after that. The parameter takes is the duration of the operation. The last poll must be
// the first poll after the operation's end, or the poll after an hour if that comes first.
func wantPolled(t *testing.T, m *merchants, takes time.Duration) {
	t.Helper()
	if at := m.of("order-1"); len(at) != 1 {
		t.Errorf("the request was sent at %v", at)
	}
	var want []time.Duration
	wait := time.Second
	for at := wait; ; at += wait {
		want = append(want, min(at, time.Hour))
		if at >= min(takes, time.Hour) {
			break
		}
		wait = min(2*wait, time.Minute)
	}
	if at := m.of("operations/order-1"); !exactly(at, want) {
		t.Errorf("polled at %v, want %v", at, want)
	}
}

// TestAsyncStatuses polls a real server that responds with each kind of status in turn. Only the
// last response may end the operation. Times are divided by 1,800. The operation nevertheless takes
// the equivalent of over an hour, because two Retry-After headers demand 1 s each.
func TestAsyncStatuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last  reply
		state string
	}{
		"SUCCESS": {reply{200, "", succeeded}, "done"},
		"FAILED":  {reply{200, "", failed}, "dead"},
		"gone":    {reply{410, "", ""}, "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &replier{last: c.last}
			server := httptest.NewServer(r)
			defer server.Close()
			f := newFixture(t, t.TempDir(), overNetwork(t, server.URL), nil, false)
			defer f.stop()
			if err := f.deliver("order-1"); err != nil {
				t.Fatal(err)
			}
			d := awaitDelivery(
				t, f.Deliveries(), "order-1",
				func(d stream.Delivery) bool { return d.State != "waiting" },
			)
			r.check(t, d, c.state)
		})
	}
}

// reply is a response to a poll.
type reply struct {
	status     int
	retryAfter string
	body       string
}

// pending lists responses that do not end an operation.
var pending = []reply{
	{200, "", running}, {202, "", ""}, {429, "", ""}, {429, "1", ""}, {503, "1", ""},
	{500, "", succeeded}, {502, "", ""}, {404, "", ""}, {401, "", ""}, {304, "", ""},
	{200, "", "not JSON"}, {425, "", ""}, {408, "", ""},
}

// replier responds to polls with all of pending, then with last.
type replier struct {
	last reply

	mu    sync.Mutex // guards the fields below
	posts int
	polls []time.Time
}

// ServeHTTP implements http.Handler.
func (r *replier) ServeHTTP(w nethttp.ResponseWriter, req *nethttp.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == nethttp.MethodPost {
		r.posts++
		w.Header().Set("Location", "/operations/1")
		w.WriteHeader(nethttp.StatusAccepted)
		return
	}
	is := r.last
	if n := len(r.polls); n < len(pending) {
		is = pending[n]
	}
	r.polls = append(r.polls, time.Now())
	if req.Header.Get("Idempotency-Key") != "order-1" || req.URL.Path != "/operations/1" {
		is = reply{400, "", ""}
	}
	if is.retryAfter != "" {
		w.Header().Set("Retry-After", is.retryAfter)
	}
	w.WriteHeader(is.status)
	if is.status != nethttp.StatusNotModified {
		fmt.Fprint(w, is.body)
	}
}

// check checks the end of the delivery, and that each poll waited at least as long as required.
func (r *replier) check(t *testing.T, d stream.Delivery, state string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.State != state || r.posts != 1 || len(r.polls) != len(pending)+1 {
		t.Errorf("%s after %d requests and %d polls, want %s after 1 and %d: %+v",
			d.State, r.posts, len(r.polls), state, len(pending)+1, d.Attempts)
	}
	for n := range min(len(pending), len(r.polls)-1) {
		least := 16 * time.Millisecond
		if pending[n].retryAfter != "" {
			least = time.Second
		}
		const stored = time.Millisecond // precision of due times
		if waited := r.polls[n+1].Sub(r.polls[n]); waited < least-stored {
			t.Errorf("%v after reply %d, %+v; want at least %v", waited, n, pending[n], least)
		}
	}
}

// overNetwork returns options for a real server. Each line is an order.
func overNetwork(t *testing.T, server string) *Options {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	o := asyncOptions()
	o.URL, o.IdempotencyKey = expr.Text(strconv.Quote(server+"/paid")), "message"
	o.Allow = egress.Policy{
		Hosts:   []string{u.Hostname()},
		Ports:   []int{port},
		HTTP:    true,
		Private: true,
	}
	o.Async.Poll, o.Async.Max = "fixed delay=16ms", time.Minute
	return o
}

// awaitDelivery queries a delivery until wanted returns true for it.
func awaitDelivery(
	t *testing.T, store stream.DeliveryStore, key string, wanted func(stream.Delivery) bool,
) (d stream.Delivery) {
	t.Helper()
	eventually(t, func() bool {
		var err error
		d, err = store.Delivery(t.Context(), key)
		return err == nil && wanted(d)
	}, func() string { return fmt.Sprintf("the delivery is %+v", d) })
	return d
}

// eventually waits until a condition holds.
func eventually(t *testing.T, holds func() bool, state func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not as expected within a minute: %s", state())
		}
	}
}

// TestAsyncLocation checks that the receiver can direct polls only to URLs that records may use.
func TestAsyncLocation(t *testing.T) {
	t.Parallel()
	for location, c := range map[string]struct {
		polled string // URL; "" if the delivery ends instead
		header bool   // with the record's headers
	}{
		"/op":                          {"https://m1.shops.example/op", true},
		"op?x=1":                       {"https://m1.shops.example/op?x=1", true},
		"//m2.shops.example/op":        {"https://m2.shops.example/op", false},
		"https://m1.shops.example:443": {"https://m1.shops.example", true},
		"https://shops.example/op":     {},
		"http://m1.shops.example/op":   {},
		"https://127.0.0.1/op":         {},
		"https://m1.shops.example:22/": {},
		"https://u:p@m1.shops.example": {},
		"file:///etc/passwd":           {},
		"https://m1.shops.example/" + strings.Repeat("x", maxLocation): {},
		" ": {},
	} {
		t.Run(location[:min(30, len(location))], func(t *testing.T) {
			bubble(t, func(t *testing.T, dir string) {
				o := asyncOptions()
				o.Allow.HTTP = true
				o.Headers = map[string]expr.Text{"Authorization": `"Bearer for m1"`}
				o.Sign = Sign{Webhooks: Webhooks{Secrets: []string{oldSecret}}}
				m := newMerchants(func(r *nethttp.Request, _ int) (int, string, time.Duration) {
					if r.Method == nethttp.MethodPost {
						return 202, "location " + location, 0
					}
					return 200, succeeded, 0
				})
				f := newFixture(t, dir, o, m, false)
				defer f.stop()
				if err := f.deliver("m1 order-1"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if c.polled == "" {
					if len(f.m.requests) != 1 || len(f.letters) != 1 ||
						f.letters[0].Reason != "the receiver's operation cannot be polled" {
						t.Errorf("%d requests, dead letters %+v", len(f.m.requests), f.letters)
					}
					return
				}
				if len(f.m.requests) != 2 || f.m.requests[1].URL.String() != c.polled {
					t.Fatalf(
						"%d requests, the last %v, want %s", len(f.m.requests),
						f.m.requests[len(f.m.requests)-1].URL, c.polled,
					)
				}
				header := f.m.requests[1].Header
				if has := header.Get("Authorization") != ""; has != c.header ||
					header.Get("Webhook-Signature") != "" {
					t.Errorf("the poll's headers are %v", header)
				}
				if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 1}) {
					t.Errorf("counts %+v", got)
				}
			})
		})
	}
}

// TestAsyncDownHost checks that operations wait while their host is down, like notifications, and
// end after the outage.
func TestAsyncDownHost(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dir string) {
		m := newMerchants(nil)
		m.respond = func(r *nethttp.Request, _ int) (int, string, time.Duration) {
			at := time.Since(m.start)
			switch {
			case r.Method == nethttp.MethodPost:
				return 202, "location /operations" + r.URL.Path, 0
			case at > 500*time.Millisecond && at < 20*time.Minute:
				return 0, "", 0
			}
			return 200, succeeded, 0
		}
		f := newFixture(t, dir, asyncOptions(), m, false)
		defer f.stop()
		var lines []string
		for n := range 50 {
			lines = append(lines, fmt.Sprintf("m1 order-%d", n))
		}
		if err := f.deliver(lines...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(19 * time.Minute)
		synctest.Wait()
		if n := m.total("operations/"); n > 16+12 {
			t.Errorf("%d polls of 50 operations in the 19 minutes in which the host is down", n)
		}
		time.Sleep(41 * time.Minute)
		synctest.Wait()
		if got := f.Parked(); got != (stream.ParkedCounts{Delivered: 50}) ||
			m.total("order-") != 50 {
			t.Errorf("counts %+v, %d requests", got, m.total("order-"))
		}
	})
}

func TestAsyncOptions(t *testing.T) {
	for key, change := range map[string]func(*Options){
		"async.location": func(o *Options) { o.Async.Location = "" },
		"async.done":     func(o *Options) { o.Async.Done = "" },
		"async.failed":   func(o *Options) { o.Async.Failed = "state ==" },
		"async.max":      func(o *Options) { o.Async.Max = 0 },
		"async.poll":     func(o *Options) { o.Async.Poll = "fixed delay=10ms" },
		"exhausted":      func(o *Options) { o.Exhausted = "drop" },
	} {
		o := asyncOptions()
		change(o)
		var wrong *stream.OptionError
		if err := o.Validate(); !errors.As(err, &wrong) || wrong.Key != key {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := asyncOptions().Validate(); err != nil {
		t.Error(err)
	}
}

const childDir, childURL = "PENSTOCK_TEST_NOTIFY_DIR", "PENSTOCK_TEST_NOTIFY_URL"

// TestAsyncKilled kills the process while it polls. It checks that polling resumes, that no
// operation is lost, and that none is started twice.
func TestAsyncKilled(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(childDir); dir != "" {
		pollAsChild(t, dir)
		return
	}
	if runtime.GOOS == "windows" {
		t.Skip("kill -9 is tested on systems that have it")
	}
	const orders, kills = 20, 5
	r := &asyncReceiver{posts: map[string]int{}, polls: map[string]int{}, enough: 2 * kills}
	server := httptest.NewServer(r)
	defer server.Close()
	dir := t.TempDir()
	for round := 1; round <= kills; round++ {
		kill := startChild(t, dir, server.URL)
		eventually(t, func() bool { return r.leastPolls(orders) >= round }, r.String)
		kill()
	}
	kill := startChild(t, dir, server.URL)
	defer kill()
	store, err := overNetwork(t, server.URL).OpenDeliveries(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for n := range orders {
		key := fmt.Sprintf("order-%d", n)
		awaitDelivery(t, store, key, func(d stream.Delivery) bool { return d.State == "done" })
		if posts := r.sent(key); posts != 1 {
			t.Errorf("%s was sent %d times", key, posts)
		}
	}
}

// startChild runs pollAsChild in a new process until kill is called.
func startChild(t *testing.T, dir, url string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsyncKilled$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childURL+"="+url)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // an error is expected after the kill
	}
}

// pollAsChild delivers orders until it is killed. Each process reads all orders again, as if the
// kill came before a checkpoint.
func pollAsChild(t *testing.T, dir string) {
	f := newFixture(t, dir, overNetwork(t, os.Getenv(childURL)), nil, false)
	for n := range 20 {
		if err := f.deliver(fmt.Sprintf("order-%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	<-t.Context().Done()
}

// asyncReceiver starts operations that end after enough polls.
type asyncReceiver struct {
	enough int

	mu           sync.Mutex     // guards the fields below
	posts, polls map[string]int // by order
}

// ServeHTTP implements http.Handler.
func (r *asyncReceiver) ServeHTTP(w nethttp.ResponseWriter, req *nethttp.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := req.Header.Get("Idempotency-Key")
	if req.Method == nethttp.MethodPost {
		r.posts[key]++
		w.Header().Set("Location", "/operations/"+key)
		w.WriteHeader(nethttp.StatusAccepted)
		return
	}
	if r.polls[key]++; r.polls[key] >= r.enough {
		fmt.Fprint(w, succeeded)
		return
	}
	fmt.Fprint(w, running)
}

func (r *asyncReceiver) sent(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.posts[key]
}

// leastPolls returns the smallest number of polls among the given number of orders.
func (r *asyncReceiver) leastPolls(orders int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	least := r.enough
	for n := range orders {
		least = min(least, r.polls[fmt.Sprintf("order-%d", n)])
	}
	return least
}

// String returns the counts of requests.
func (r *asyncReceiver) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("sent %v, polled %v", r.posts, r.polls)
}
