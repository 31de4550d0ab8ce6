package notify

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

const (
	loadMode    = "PENSTOCK_NOTIFY_LOAD"
	loadRecords = "PENSTOCK_NOTIFY_RECORDS"
	loadRate    = "PENSTOCK_NOTIFY_RATE" // records per second, instead of 60 % of the measured rate
	loadServer  = "PENSTOCK_TEST_NOTIFY_SERVER"
)

// Response times of merchants. The sink has 256 attempts in flight, so healthy merchants can take
// at most 2,560 records per second. The test sends 60 % of that, 1,536 per second. On a slower
// machine, it sends 60 % of the measured rate.
const (
	wellTakes = 100 * time.Millisecond
	slowTakes = 2 * time.Second
)

// load is the size of a run.
type load struct {
	merchants, records int
	repeats            int // pairs of runs; of each figure, the smallest counts
}

// wellRecords bounds the records of a run without dead or slow merchants.
func (l load) wellRecords() int { return min(l.records, max(50_000, l.records/20)) }

// TestLoad sends to 10,000 merchants, of which 1 % are dead and 5 % slow, at 60 % of the rate that
// is possible if all are healthy. It measures the latency of healthy merchants from the source to
// the acceptance, the attempts at dead hosts, and the memory. The processor time that it prints
// shows how close the machine was to its limit. `make notify-load` runs the full size.
func TestLoad(t *testing.T) {
	if os.Getenv(loadServer) != "" {
		serveLoad(t)
		return
	}
	l, ok := map[string]load{
		"full": {10_000, 1_000_000, 1}, "short": {1000, 6000, 3},
	}[os.Getenv(loadMode)]
	if !ok {
		t.Skip("skipped: " + loadMode + " is neither full nor short")
	}
	if n, err := strconv.Atoi(os.Getenv(loadRecords)); err == nil && n > 0 {
		l.records = n
	}
	at := startLoadServer(t)
	fixedRate, err := strconv.ParseFloat(os.Getenv(loadRate), 64)
	var before, after time.Duration
	deadShare := 100.0
	for range l.repeats {
		rate := fixedRate
		if err != nil {
			capacity := newRun(t, at, l, false).flood(min(l.records, 20_000))
			t.Logf("%d merchants take %.0f records a second", l.merchants, capacity)
			rate = 0.6 * capacity
		}
		well, bad := newRun(t, at, l, false), newRun(t, at, l, true)
		before = least(before, well.at(rate, l.wellRecords()))
		after = least(after, bad.at(rate, l.records))
		share := 100 * float64(bad.dead.Load()) / float64(bad.attempts.Load())
		t.Logf("%d records at %.0f/s: p99 %v, with 1 %% dead and 5 %% slow %v; "+
			"%.2f %% of attempts at dead hosts; memory %.0f MiB; %.0f %% of a processor",
			l.records, rate, before.Round(time.Millisecond), after.Round(time.Millisecond),
			share, resident(), 100*bad.load)
		deadShare = min(deadShare, share)
	}
	if deadShare > 1.5 {
		t.Errorf("%.2f %% of attempts were made at dead hosts, at most 1.5 %% may be", deadShare)
	}
	if ratio := after.Seconds() / before.Seconds(); ratio > 1.3 {
		t.Errorf("dead and slow merchants raise the p99 of the others by %.2f, at most 1.3", ratio)
	}
	if mib := resident(); mib > 256 {
		t.Errorf("%.0f MiB of memory, at most 256 are allowed", mib)
	}
}

func least(best, next time.Duration) time.Duration {
	if best == 0 {
		return next
	}
	return min(best, next)
}

// loadRun is a sink with many merchants. All host names lead to one server on loopback.
type loadRun struct {
	*fixture
	l       load
	bad     bool
	base    nethttp.RoundTripper
	closed  string // an address without a listener
	begun   time.Time
	planned []time.Duration // when each record arrives
	took    []time.Duration // from arrival to acceptance
	left    atomic.Int64    // unaccepted records of healthy merchants
	ended   chan struct{}

	attempts, dead atomic.Int64
	load           float64 // number of processors that this process uses
}

func newRun(t *testing.T, at string, l load, bad bool) *loadRun {
	t.Helper()
	r := &loadRun{l: l, bad: bad, closed: connectortest.FreeAddress(t), ended: make(chan struct{})}
	dialer := net.Dialer{Timeout: 10 * time.Second}
	r.base = &nethttp.Transport{
		MaxIdleConns: 1000, MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasPrefix(address, "refuses") {
				return dialer.DialContext(ctx, network, r.closed)
			}
			return dialer.DialContext(ctx, network, at)
		},
	}
	o := options()
	o.Allow.HTTP = true
	o.URL = `"http://" + split(message, " ")[0] + ".shops.example/" + split(message, " ")[1]`
	o.Timeout = 10 * time.Second
	r.fixture = newFixture(t, t.TempDir(), o, nil, false)
	r.transport = r
	return r
}

// merchant returns the merchant of record n. Of 100 merchants, five are slow and one is dead. Dead
// merchants are silent or refuse connections.
func (r *loadRun) merchant(n int) (name string, isWell bool) {
	m := n % r.l.merchants
	switch {
	case !r.bad || m%100 > 5:
		return fmt.Sprintf("m%d", m), true
	case m%100 > 0:
		return fmt.Sprintf("slow%d", m), false
	case m%200 == 0:
		return fmt.Sprintf("silent%d", m), false
	}
	return fmt.Sprintf("refuses%d", m), false
}

// RoundTrip implements http.RoundTripper.
func (r *loadRun) RoundTrip(req *nethttp.Request) (*nethttp.Response, error) {
	r.attempts.Add(1)
	if host := req.URL.Host; strings.HasPrefix(host, "silent") || strings.HasPrefix(host, "refuses") {
		r.dead.Add(1)
	}
	res, err := r.base.RoundTrip(req)
	n, _ := strconv.Atoi(req.URL.Path[1:])
	if _, isWell := r.merchant(n); isWell && err == nil && res.StatusCode == 200 && r.took[n] == 0 {
		r.took[n] = max(1, time.Since(r.begun)-r.planned[n])
		if r.left.Add(-1) == 0 {
			close(r.ended)
		}
	}
	return res, err
}

// CloseIdleConnections is called when the sink closes.
func (r *loadRun) CloseIdleConnections() { r.base.(*nethttp.Transport).CloseIdleConnections() }

// flood delivers n records as fast as the sink accepts them, and returns the records per second.
func (r *loadRun) flood(n int) float64 {
	r.start(n, 0)
	defer r.stop()
	<-r.ended
	return float64(n) / time.Since(r.begun).Seconds()
}

// at delivers n records at a rate and returns the p99 latency of healthy merchants.
func (r *loadRun) at(rate float64, n int) time.Duration {
	before := processorTime()
	r.start(n, rate)
	defer r.stop()
	<-r.ended
	r.load = (processorTime() - before).Seconds() / time.Since(r.begun).Seconds()
	var took []time.Duration
	for i := range n {
		if _, isWell := r.merchant(i); isWell {
			took = append(took, r.took[i])
		}
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// start begins to deliver n records, with as many goroutines as a route has in-flight batches. At a
// rate above 0, each batch has the records of a twentieth of a second, at most 500, and is
// delivered at its planned time. At rate 0, batches of 500 records are delivered without pauses.
func (r *loadRun) start(n int, rate float64) {
	r.planned, r.took, r.begun = make([]time.Duration, n), make([]time.Duration, n), time.Now()
	size := 500
	if rate > 0 {
		size = max(1, min(500, int(rate/20)))
	}
	for i := range n {
		if rate > 0 {
			r.planned[i] = time.Duration(float64(i) / rate * float64(time.Second))
		}
		if _, isWell := r.merchant(i); isWell {
			r.left.Add(1)
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range batches {
		wg.Go(func() {
			for {
				to := int(next.Add(int64(size)))
				from := to - size
				if to = min(to, n); from >= n {
					return
				}
				timer := time.NewTimer(time.Until(r.begun.Add(r.planned[to-1])))
				<-timer.C
				r.batch(from, to)
			}
		})
	}
	r.t.Cleanup(wg.Wait)
}

func (r *loadRun) batch(from, to int) {
	lines := make([]string, to-from)
	for i := range lines {
		name, _ := r.merchant(from + i)
		lines[i] = fmt.Sprintf("%s %d", name, from+i)
	}
	b := streamtest.Lines(lines...)
	b.Spans[0].Part = &stream.Partition{ID: fmt.Sprintf("f-%d", from), Name: "orders.log"}
	if _, err := r.Encode(nil, b); err != nil {
		r.t.Error(err)
		return
	}
	if _, err := r.lane.Worker.Deliver(context.Background(), stream.Attempt{Value: b}); err != nil {
		r.t.Error(err)
	}
}

// startLoadServer runs serveLoad in a separate process, so that the measured memory is the sink's
// alone.
func startLoadServer(t *testing.T) (address string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLoad$")
	cmd.Env = append(os.Environ(), loadServer+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // an error is expected after the kill
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			return address
		}
	}
	t.Fatal("the server has not started")
	return ""
}

// serveLoad serves all merchants. Silent ones never respond, slow ones respond late.
func serveLoad(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening on", l.Addr())
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go serveMerchant(conn)
	}
}

// serveMerchant answers the requests of a connection. It costs less than nethttp.Serve, because the
// merchants share the machine with the measured sink.
func serveMerchant(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1024)
	for {
		r, err := nethttp.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		switch {
		case strings.HasPrefix(r.Host, "silent"):
			_, _ = in.Peek(1) // returns when the sink gives up
			return
		case strings.HasPrefix(r.Host, "slow"):
			<-time.After(slowTakes)
		default:
			<-time.After(wellTakes)
		}
		const response = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsuccess"
		if _, err := io.WriteString(conn, response); err != nil {
			return
		}
	}
}

// processorTime returns the processor time of this process, or 0 if it is unknown.
func processorTime() time.Duration {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // ticks of 1/100 s
}

// resident returns the peak resident memory of this process in MiB, or 0 if it is unknown.
func resident() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			kib, err := strconv.ParseFloat(string(bytes.Fields(rest)[0]), 64)
			if err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}
