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
	CreditHeader = "Penstock-Credit" // header of a response
	SenderHeader = "Penstock-Sender" // header of a request
)

// Receiver advertises a worker's window to its senders: how much each of them may have in flight.
// It keeps the queue at the worker short, but not empty. Wrap the handler of an HTTP server with
// [Receiver.Handler]. In other servers, call Begin and the functions that it returns around each
// batch. The methods are safe for concurrent use, and start no goroutine.
//
// The zero value serves as many batches at once as the program has threads, runtime.GOMAXPROCS(0),
// which suits a handler that computes. For a handler that mostly waits for a disk or another
// server, set Slots to the number of batches at which its throughput stops growing.
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

// Grant is the advertisement that a worker sends with a response.
type Grant struct {
	Report
	Unit string // unit of the counts, as named by the request; "" if it is the sender's cost
}

// String returns the grant as the value of [CreditHeader].
func (g Grant) String() string {
	more := ""
	if g.Cost > 0 {
		more += "; cost=" + strconv.FormatUint(g.Cost, 10)
	}
	switch {
	case g.Batches:
		more += "; unit=batches"
	case g.Unit != "":
		more += "; unit=" + g.Unit
	}
	if g.Draining {
		more += "; state=draining"
	}
	return fmt.Sprintf("epoch=%d; credit=%d; taken=%d; queue=%d; slots=%d; wait=%d; service=%d%s",
		g.Epoch, g.Credit, g.Taken, g.QueueLen, g.Slots, g.QueueWait.Microseconds(),
		g.Service.Microseconds(), more)
}

// Begin records the arrival of a batch of this cost from a sender. A cost of 0 means 1. The
// parameter network is the network's round trip as measured by the sender, or 0 if unknown.
//
// Begin returns two functions. Call the first one, serve, when the service of the batch begins (at
// once if batches never wait), and the second one, done, at its end. Send the grant that done
// returns with the response. A second call of serve or done has no effect.
func (r *Receiver) Begin(sender string, cost float64,
	network time.Duration) (serve func(), done func() Grant) {
	a := r.Arrive(sender, cost, network)
	return a.Serve, a.Done
}

// Arrive is Begin for receivers that learn the cost of a batch while they read it, or that may
// cancel a batch.
func (r *Receiver) Arrive(sender string, cost float64, network time.Duration) *Arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	if !(cost > 0) {
		cost = 1
	}
	r.waiting += cost
	return &Arrival{r: r, sender: hashOf(sender), cost: cost, network: network, arrived: time.Now()}
}

// begin prepares the Receiver at its first call. It sets the epoch, a number that tells senders
// whether the program was restarted. The caller holds mu.
func (r *Receiver) begin() {
	if r.start.IsZero() {
		r.start = time.Now()
		r.epoch = uint32(r.start.UnixMilli()/100) | 1
		r.pool.Max = r.Max
	}
}

// Draining returns the grant of a receiver that is about to end. A sender that gets it stops using
// the lane.
func (r *Receiver) Draining() Grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin()
	return Grant{Report: Report{Epoch: r.epoch, Draining: true}}
}

// Arrival is a batch that has arrived at a [Receiver]. Its methods are safe for concurrent use.
type Arrival struct {
	r       *Receiver
	sender  uint64
	network time.Duration
	arrived time.Time

	// r.mu guards the fields below.
	cost  float64
	began time.Time // when service began; zero while the batch waits
	over  bool
	grant Grant
}

// Reprice replaces the cost of the batch. It does nothing once service has begun.
func (a *Arrival) Reprice(cost float64) {
	r := a.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.began.IsZero() && !a.over && cost > 0 {
		r.waiting += cost - a.cost
		a.cost = cost
	}
}

// Serve notes that the service of the batch begins.
func (a *Arrival) Serve() {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.serve()
}

// serve is Serve for a caller that holds r.mu.
func (a *Arrival) serve() {
	if a.began.IsZero() && !a.over {
		a.began = time.Now()
		a.r.waiting -= a.cost
		a.r.serving++
	}
}

// Done notes that the batch has been served, and returns the grant for the response.
func (a *Arrival) Done() Grant {
	r := a.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.over {
		return a.grant
	}
	a.serve()
	a.end()
	now := time.Now()
	ad := r.pool.Done(now.Sub(r.start), a.sender, a.cost, r.waiting, a.network)
	a.grant = Grant{Report: Report{
		Epoch: r.epoch, Credit: ad.Credit, Taken: ad.Taken, QueueLen: ad.QueueLen, Slots: r.slots(),
		QueueWait: a.began.Sub(a.arrived), Service: now.Sub(a.began),
	}}
	return a.grant
}

// Cancel notes that the batch will not be served. It does nothing after Done.
func (a *Arrival) Cancel() {
	r := a.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.over {
		a.serve()
		a.end()
	}
}

// end removes the batch from the counts. The caller holds r.mu.
func (a *Arrival) end() {
	r := a.r
	a.over = true
	r.serving--
	if r.serving == 0 && r.waiting < 1e-9 {
		r.waiting = 0
	}
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

// Handler returns a handler that limits the concurrent requests to the handler next: at most Slots,
// in the order of their arrival. It advertises the window with each response. Each request has a
// cost of 1.
func (r *Receiver) Handler(next http.Handler) http.Handler {
	slots := make(chan struct{}, r.slots())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		sender := ParseSender(req)
		arrival := r.Arrive(sender.Name, 1, sender.Network)
		select {
		case slots <- struct{}{}:
		case <-req.Context().Done():
			arrival.Cancel()
			// Without a response, net/http would send 200 OK if the connection still exists.
			http.Error(w, http.StatusText(http.StatusServiceUnavailable),
				http.StatusServiceUnavailable)
			return
		}
		arrival.Serve()
		a := &granted{ResponseWriter: w, done: arrival.Done}
		defer func() {
			a.grant()
			<-slots
		}()
		next.ServeHTTP(a, req)
	})
}

// granted is a ResponseWriter that adds [CreditHeader] before the response begins.
type granted struct {
	http.ResponseWriter
	done func() Grant
	over bool
}

func (g *granted) grant() {
	if !g.over {
		g.over = true
		grant := g.done()
		grant.Batches = true // each request has cost 1
		g.Header().Set(CreditHeader, grant.String())
	}
}

// WriteHeader implements http.ResponseWriter.
func (g *granted) WriteHeader(status int) {
	// Other 1xx statuses are informational: the response is still to come.
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		g.grant()
	}
	g.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (g *granted) Write(b []byte) (int, error) {
	g.grant()
	return g.ResponseWriter.Write(b)
}

// FlushError is called by http.ResponseController. A flush begins the response.
func (g *granted) FlushError() error {
	g.grant()
	return http.NewResponseController(g.ResponseWriter).Flush()
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (g *granted) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// Origin is the content of [SenderHeader].
type Origin struct {
	Name    string        // name of the sender, or its address if it sends no name
	Network time.Duration // the network's round trip as measured by the sender; 0 if unknown
	Unit    string        // unit of Cost and of the grant, such as records; "" if it sends none
	Cost    float64       // cost of this batch; 0 if it sends none
}

// maxSenderCost bounds the cost that a request may state.
const maxSenderCost = 1 << 40

// ParseSender reads [SenderHeader] of a request. Unknown and invalid members are skipped.
func ParseSender(req *http.Request) (o Origin) {
	for i, part := range strings.Split(req.Header.Get(SenderHeader), ";") {
		part = strings.TrimSpace(part)
		if i == 0 {
			o.Name = part
			continue
		}
		name, text, _ := strings.Cut(part, "=")
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case name == "unit":
			o.Unit = text
		case err != nil || n <= 0:
		case name == "network" && n < int64(time.Minute/time.Microsecond):
			o.Network = time.Duration(n) * time.Microsecond
		case name == "cost" && n <= maxSenderCost:
			o.Cost = float64(n)
		}
	}
	if o.Name == "" {
		o.Name, _, _ = net.SplitHostPort(req.RemoteAddr)
	}
	return o
}

// ParseGrant parses the value of [CreditHeader], a list of members such as "epoch=7;credit=120". It
// reports false if the value is not a grant. Unknown members, and members with a value that is not
// a number, are skipped. The fields of missing members are 0. The figures count batches if the
// member unit is "batches". Otherwise they are in units of the sender's cost (Item.Cost).
func ParseGrant(value string) (Report, bool) {
	var r Report
	for part := range strings.SplitSeq(value, ";") {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "unit":
			r.Batches = text == "batches"
			continue
		case "state":
			r.Draining = text == "draining"
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
		case "cost":
			r.Cost = n
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
