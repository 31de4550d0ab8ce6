//go:build unix

package endtoend

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// takeoverSource is a source that three engines share.
type takeoverSource struct {
	yaml    func(node string) string // state and source of a node
	events  string                   // counter that must not grow in a run without kills
	all     bool                     // every engine delivers; otherwise one does
	produce func() *producer
	// victim returns the node to kill. Before it returns, it may cause another failure, such as the
	// end of a NATS server.
	victim func() string
}

// takeoverRun runs three engines that deliver the records of a shared source to one HTTP receiver.
// Each engine has its own URL path there.
type takeoverRun struct {
	t        *testing.T
	rnd      *rand.Rand
	source   takeoverSource
	receiver *pathReceiver
	producer *producer
	nodes    map[string]*member
	admins   map[string]string // addresses for metrics
}

// takeoverKills returns the number of kills, from the variable PENSTOCK_TAKEOVER. If the variable
// is not set, it skips the test.
func takeoverKills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("PENSTOCK_TAKEOVER")
	if text == "" {
		t.Skip("PENSTOCK_TAKEOVER is not set: make takeover")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PENSTOCK_TAKEOVER is %q, want a number of kills", text)
	}
	return n
}

func startTakeover(t *testing.T, s takeoverSource) *takeoverRun {
	t.Helper()
	r := &takeoverRun{t: t, rnd: seeded(t), source: s, receiver: newPathReceiver(t),
		nodes: make(map[string]*member), admins: make(map[string]string)}
	dir := t.TempDir()
	for _, node := range sharedNodes {
		r.admins[node] = connectortest.FreeAddress(t)
		config := write(t, filepath.Join(dir, node, "penstock.yaml"), fmt.Sprintf(`
admin: %q
%s
    sink: { http: { endpoints: ["%s/%s"], body: raw } }
    batch: { records: 50 }
`, r.admins[node], s.yaml(node), r.receiver.server.URL, node))
		r.nodes[node] = &member{t: t, config: config}
		r.nodes[node].start()
	}
	r.producer = s.produce()
	r.awaitDeliveries()
	return r
}

// awaitDeliveries waits until the engines deliver.
func (r *takeoverRun) awaitDeliveries() {
	r.t.Helper()
	before := r.receiver.counts()
	await(r.t, time.Minute, "deliveries of the engines", func() bool {
		now, delivering := r.receiver.counts(), 0
		for _, node := range sharedNodes {
			if now[node] > before[node] {
				delivering++
			}
		}
		return delivering == len(sharedNodes) || delivering > 0 && !r.source.all
	})
}

// events returns the sum of the source's counter at all engines.
func (r *takeoverRun) events() (sum float64) {
	r.t.Helper()
	for _, address := range r.admins {
		status, text := page(r.t.Context(), r.t, "http://"+address+"/metrics")
		found := false
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "#") || !strings.Contains(line, r.source.events) {
				continue
			}
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				r.t.Fatal(err)
			}
			sum, found = sum+n, true
		}
		if !found {
			r.t.Fatalf("%d: no counter %s in\n%s", status, r.source.events, text)
		}
	}
	return sum
}

// quietTime is longer than a session, an ack_wait and the expiry of a lease.
const quietTime = 12 * time.Second

// checkQuiet fails if a partition or lease moves between the engines while none is killed.
func (r *takeoverRun) checkQuiet() {
	r.t.Helper()
	before := r.events()
	<-time.After(quietTime)
	if after := r.events(); after != before {
		r.t.Errorf("%s has grown from %v to %v, and no engine was killed", r.source.events, before,
			after)
	}
}

// kill kills an engine. It returns the time until other engines have delivered the records that the
// engine had not settled.
func (r *takeoverRun) kill() time.Duration {
	r.t.Helper()
	node := r.source.victim()
	m := r.nodes[node]
	r.receiver.freeze(node)
	acked := int(r.producer.acked.Load())
	m.kill()
	killed := time.Now()
	open := r.receiver.missing(acked)
	if len(open) == 0 {
		r.t.Fatalf("%s had no unsettled record", node)
	}
	var last time.Time
	await(r.t, 45*time.Second, "the unsettled records", func() bool {
		var ok bool
		last, ok = r.receiver.lastOf(open)
		return ok
	})
	r.receiver.thaw(node)
	m.start()
	r.awaitDeliveries()
	return last.Sub(killed)
}

// measure kills n engines one after the other, and checks the times of the takeovers and that no
// record is lost.
func (r *takeoverRun) measure(n int, median, worst time.Duration) {
	r.t.Helper()
	var took []time.Duration
	for range n {
		pauseRandomly(r.rnd)
		took = append(took, r.kill().Round(time.Millisecond))
	}
	r.producer.stop()
	if err := <-r.producer.done; err != nil {
		r.t.Fatal(err)
	}
	acked := int(r.producer.acked.Load())
	await(r.t, time.Minute, "all records", func() bool { return len(r.receiver.missing(acked)) == 0 })
	r.t.Logf("%d kills, %d records, 0 lost, %d answered more than once; takeovers %v", n, acked,
		r.receiver.repeated(), took)
	slices.Sort(took)
	r.t.Logf("takeover: median %v, worst %v", took[len(took)/2], took[len(took)-1])
	if took[len(took)/2] > median || took[len(took)-1] > worst {
		r.t.Errorf("want a median of at most %v and at most %v each", median, worst)
	}
}

func (r *takeoverRun) anyNode() string { return sharedNodes[r.rnd.IntN(len(sharedNodes))] }

// pathReceiver accepts numbered lines over HTTP. It delays its responses, so that some lines are
// always in flight. The URL path is the name of the sender.
type pathReceiver struct {
	server *httptest.Server

	mu       sync.Mutex // guards the fields below
	frozen   map[string]bool
	answered map[int]int // by line
	at       map[int]time.Time
	senders  map[string]int // answered requests
}

func newPathReceiver(t *testing.T) *pathReceiver {
	r := &pathReceiver{frozen: make(map[string]bool), answered: make(map[int]int),
		at: make(map[int]time.Time), senders: make(map[string]int)}
	r.server = httptest.NewServer(http.HandlerFunc(r.accept))
	t.Cleanup(r.server.Close)
	return r
}

func (r *pathReceiver) accept(w http.ResponseWriter, q *http.Request) {
	var lines []int
	for s := bufio.NewScanner(q.Body); s.Scan(); {
		n, err := strconv.Atoi(s.Text())
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		lines = append(lines, n)
	}
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	sender := strings.TrimPrefix(q.URL.Path, "/")
	if !r.answer(sender, lines) {
		<-q.Context().Done() // the sender is being killed
	}
}

// answer records lines as answered. It reports false if the sender gets no answer.
func (r *pathReceiver) answer(sender string, lines []int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen[sender] {
		return false
	}
	now := time.Now()
	for _, n := range lines {
		if r.answered[n]++; r.answered[n] == 1 {
			r.at[n] = now
		}
	}
	r.senders[sender]++
	return true
}

// freeze stops all answers to a sender.
func (r *pathReceiver) freeze(sender string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen[sender] = true
}

func (r *pathReceiver) thaw(sender string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.frozen, sender)
}

// missing returns the lines below end that were not answered.
func (r *pathReceiver) missing(end int) (out []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range end {
		if r.answered[n] == 0 {
			out = append(out, n)
		}
	}
	return out
}

// lastOf returns the time at which the last of lines was answered, and whether all were.
func (r *pathReceiver) lastOf(lines []int) (last time.Time, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range lines {
		if r.answered[n] == 0 {
			return time.Time{}, false
		}
		if r.at[n].After(last) {
			last = r.at[n]
		}
	}
	return last, true
}

func (r *pathReceiver) repeated() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.answered {
		if times > 1 {
			n++
		}
	}
	return n
}

func (r *pathReceiver) counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int)
	for sender, n := range r.senders {
		out[sender] = n
	}
	return out
}
