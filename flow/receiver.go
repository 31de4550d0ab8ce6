package flow

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// Headers of an advertised window; docs/formats/advertised-window.md has their form.
const (
	CreditHeader = "Penstock-Credit" // of an answer
	SenderHeader = "Penstock-Sender" // of a request
)

// Receiver advertises a worker's window to its senders: how much each may have in flight, so that a little waits at the
// worker and never more. Wrap the handler of an HTTP server with [Receiver.Handler], or call Begin and the function
// that it returns around each batch. Its methods are safe for concurrent use; it starts nothing and the zero value
// works.
type Receiver struct {
	Slots int     // batches that the worker serves at once; 0 means 1
	Max   float64 // batches that all senders together may have in flight; 0 means 1000

	mu      sync.Mutex // guards what follows
	start   time.Time
	epoch   uint32
	pool    window.Pool
	waiting float64 // cost that has come and is not in service
	serving int
}

// Grant is what a worker tells a sender with an answer.
type Grant struct {
	Report
}

// String is the grant as the value of [CreditHeader].
func (g Grant) String() string {
	return fmt.Sprintf("epoch=%d; credit=%d; taken=%d; queue=%d; slots=%d; wait=%d; service=%d",
		g.Epoch, g.Credit, g.Taken, g.QueueLen, g.Slots, g.QueueWait.Microseconds(), g.Service.Microseconds())
}

// Begin takes in that a batch of this cost has come from a sender. Call serve when its service begins, at once where
// nothing ever waits, and done when it has been served: what done returns goes back with the answer. Both may be called again;
// the first call counts.
// network is the sender's own measure of the network's round trip; 0: not said.
func (r *Receiver) Begin(sender string, cost float64, network time.Duration) (serve func(), done func() Grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.start.IsZero() {
		r.start = time.Now()
		r.epoch = uint32(r.start.UnixMilli()/100) | 1
		r.pool.Max = r.Max
	}
	if !(cost > 0) {
		cost = 1
	}
	came := time.Now()
	var began time.Time
	r.waiting += cost
	serve = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if began.IsZero() {
			began = time.Now()
			r.waiting -= cost
			r.serving++
		}
	}
	var grant Grant
	var over bool
	done = func() Grant {
		serve()
		r.mu.Lock()
		defer r.mu.Unlock()
		if over {
			return grant
		}
		over = true
		now := time.Now()
		r.serving--
		if r.serving == 0 && r.waiting < 1e-9 {
			r.waiting = 0
		}
		ad := r.pool.Done(now.Sub(r.start), hashOf(sender), cost, r.waiting, network)
		grant = Grant{Report{
			Epoch: r.epoch, Credit: ad.Credit, Taken: ad.Taken, QueueLen: ad.QueueLen, Slots: max(1, r.Slots),
			QueueWait: began.Sub(came), Service: now.Sub(began),
		}}
		return grant
	}
	return serve, done
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// Handler lets next serve Slots requests at once, in the order in which they come, and advertises the window with each
// answer. A request counts as cost 1.
func (r *Receiver) Handler(next http.Handler) http.Handler {
	slots := make(chan struct{}, max(1, r.Slots))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sender, network := parseSender(req)
		serve, done := r.Begin(sender, 1, network)
		select {
		case slots <- struct{}{}:
		case <-req.Context().Done():
			done()
			return
		}
		serve()
		a := &granted{ResponseWriter: w, done: done}
		defer func() {
			a.grant()
			<-slots
		}()
		next.ServeHTTP(a, req)
	})
}

// granted adds the header before the answer begins.
type granted struct {
	http.ResponseWriter
	done func() Grant
	over bool
}

func (g *granted) grant() {
	if !g.over {
		g.over = true
		g.Header().Set(CreditHeader, g.done().String())
	}
}

// WriteHeader implements http.ResponseWriter.
func (g *granted) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // else the answer is still to come
		g.grant()
	}
	g.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (g *granted) Write(b []byte) (int, error) {
	g.grant()
	return g.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController the writer behind.
func (g *granted) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// parseSender reads [SenderHeader]: a name, and the network's round trip as the sender measures it. A sender without a
// name is known by its address.
func parseSender(req *http.Request) (name string, network time.Duration) {
	for i, part := range strings.Split(req.Header.Get(SenderHeader), ";") {
		part = strings.TrimSpace(part)
		if i == 0 {
			name = part
		} else if v, ok := strings.CutPrefix(part, "network="); ok {
			if us, err := strconv.ParseInt(v, 10, 64); err == nil && us > 0 && us < int64(time.Minute/time.Microsecond) {
				network = time.Duration(us) * time.Microsecond
			}
		}
	}
	if name == "" {
		name, _, _ = net.SplitHostPort(req.RemoteAddr)
	}
	return name, network
}

// ParseGrant reads the value of [CreditHeader]; false: it is none. Members that are not known, or whose value is no
// number, are skipped: what is left out is 0.
func ParseGrant(value string) (Report, bool) {
	var r Report
	for part := range strings.SplitSeq(value, ";") {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil {
			continue
		}
		small := int(min(n, 1<<31-1))
		span := time.Duration(min(n, uint64(time.Hour/time.Microsecond))) * time.Microsecond
		switch name {
		case "epoch":
			r.Epoch = uint32(n)
		case "credit":
			r.Credit = n
		case "taken":
			r.Taken = n
		case "queue":
			r.QueueLen = small
		case "slots":
			r.Slots = small
		case "wait":
			r.QueueWait = span
		case "service":
			r.Service = span
		}
	}
	return r, r.Epoch != 0
}
