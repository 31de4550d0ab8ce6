package flow

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/flow/window"
)

// Headers of an advertised window. Their form is in docs/formats/advertised-window.md.
const (
	CreditHeader = "Penstock-Credit" // of a response
	SenderHeader = "Penstock-Sender" // of a request
)

// Receiver advertises a worker's window to its senders: how much each of them may have in flight,
// so that a short queue forms at the worker, but no long one. Wrap the handler of an HTTP server
// with [Receiver.Handler], or call Begin and the functions that it returns around each batch. The
// methods are safe for concurrent use, and start no goroutine.
//
// The zero value serves as many batches at once as the program has threads, runtime.GOMAXPROCS(0),
// which suits a handler that computes. Set Slots for one that mostly waits for a disk or another
// server: to the number of batches at which its throughput stops growing.
type Receiver struct {
	Slots int     // batches that the worker serves at once; 0 means runtime.GOMAXPROCS(0)
	Max   float64 // batches that all senders together may have in flight; 0 means 1000

	mu      sync.Mutex // guards the fields below
	start   time.Time
	epoch   uint32
	pool    window.Pool
	waiting float64 // cost that has arrived and is not being served
	serving int
}

// Grant is the advertisement that a worker sends with an answer.
type Grant struct {
	Report
}

// String returns the grant as the value of [CreditHeader].
func (g Grant) String() string {
	unit := ""
	if g.Batches {
		unit = "; unit=batches"
	}
	return fmt.Sprintf("epoch=%d; credit=%d; taken=%d; queue=%d; slots=%d; wait=%d; service=%d%s",
		g.Epoch, g.Credit, g.Taken, g.QueueLen, g.Slots, g.QueueWait.Microseconds(), g.Service.Microseconds(), unit)
}

// Begin records the arrival of a batch of this cost from a sender; a cost of 0 means 1. Call serve
// when its service begins, which is at once if batches never wait, and done when it has been
// served. The result of done is sent with the answer. Only the first call of each counts. network
// is the network's round trip as measured by the sender; 0 if unknown.
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
			Epoch: r.epoch, Credit: ad.Credit, Taken: ad.Taken, QueueLen: ad.QueueLen, Slots: r.slots(),
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

func (r *Receiver) slots() int {
	if r.Slots > 0 {
		return r.Slots
	}
	return runtime.GOMAXPROCS(0)
}

// Handler lets next serve Slots requests at once, in the order of their arrival, and advertises the
// window with each answer. A request has cost 1.
func (r *Receiver) Handler(next http.Handler) http.Handler {
	slots := make(chan struct{}, r.slots())
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

// granted adds the header before the response begins.
type granted struct {
	http.ResponseWriter
	done func() Grant
	over bool
}

func (g *granted) grant() {
	if !g.over {
		g.over = true
		grant := g.done()
		grant.Batches = true // each request counted 1
		g.Header().Set(CreditHeader, grant.String())
	}
}

// WriteHeader implements http.ResponseWriter.
func (g *granted) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols { // others are informational
		g.grant()
	}
	g.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (g *granted) Write(b []byte) (int, error) {
	g.grant()
	return g.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (g *granted) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// parseSender reads [SenderHeader]: a name, and the network's round trip as measured by the sender.
// Without a name the sender is identified by its address.
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

// ParseGrant parses the value of [CreditHeader]. It reports false if the value is no grant. Unknown
// members, and members whose value is not a number, are skipped; missing ones are 0.
func ParseGrant(value string) (Report, bool) {
	var r Report
	for part := range strings.SplitSeq(value, ";") {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name == "unit" {
			r.Batches = text == "batches"
			continue
		}
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
