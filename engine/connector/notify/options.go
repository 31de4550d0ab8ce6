package notify

import (
	"fmt"
	nethttp "net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/egress"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/inbox"
	"github.com/penstock-io/penstock/rate"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the sink.
type Options struct {
	URL     expr.Text            `yaml:"url" required:"true" doc:"an expression: the URL of the record's request"`
	Allow   egress.Policy        `yaml:"allow" required:"true" doc:"URLs that records may choose"`
	Method  expr.Text            `yaml:"method" doc:"method: GET, POST, PUT, PATCH or DELETE, or an expression"`
	Headers map[string]expr.Text `yaml:"headers" doc:"headers: an expression for each name"`
	Body    expr.Text            `yaml:"body" doc:"an expression: the body; default: the record, as JSON if it was parsed"`

	IdempotencyKey expr.Text `yaml:"idempotency_key" doc:"an expression: the business key, also for queries; default: the record's id"`
	Accept         expr.Text `yaml:"accept" doc:"condition on status, headers and body of an accepting response; default: 2xx"`
	Stop           expr.Text `yaml:"stop" doc:"condition on a response after which no further attempt is made; 410 always ends a delivery"`

	Schedule Waits   `yaml:"schedule" doc:"waits between planned times of attempts, a policy, or an expression"`
	Backoff  string  `yaml:"backoff" doc:"a policy for records without a schedule of their own"`
	Jitter   float64 `yaml:"jitter" doc:"random delay of each attempt, at most this share of the wait before it"`

	Exhausted string `yaml:"exhausted" enum:"dead_letter,keep" doc:"at the end of the schedule: dead-letter, or keep for an operator"`

	Async Async `yaml:"async" doc:"polls the operations of receivers that answer 202"`

	Sign Sign `yaml:"sign" doc:"signatures of requests"`

	Timeout        time.Duration `yaml:"timeout" doc:"time limit of one attempt"`
	ConnectTimeout time.Duration `yaml:"connect_timeout" doc:"time limit for a connection with its TLS handshake"`
	Attempts       int           `yaml:"attempts" min:"1" max:"10000" doc:"concurrent attempts; long ones may use 3/4 as many more"`
	PerHost        int           `yaml:"per_host" min:"1" max:"1000" doc:"concurrent attempts at one host; fewer if it slows down"`
	Hosts          int           `yaml:"hosts" min:"1" max:"1000000" doc:"hosts kept in memory"`
	Limit          HostLimit     `yaml:"limit" doc:"limit of requests to each host, with polls"`
	Idle           int           `yaml:"idle_connections" min:"1" doc:"maximum idle connections of all hosts together"`
	CA             string        `yaml:"ca" path:"true" doc:"PEM file of the authorities to trust, not the system's"`

	Parked Parked `yaml:"parked" doc:"the store of deliveries"`

	programs programs
	schedule parked.Schedule
}

// HostLimit bounds the requests to each host.
type HostLimit struct {
	// Rate is the number of requests per second. Zero, the default, means no limit.
	Rate stream.PerSecond `yaml:"rate" doc:"requests a second: 10/s, 600/m or 5000/h"`
	// Burst is the number of requests that may be sent at once after a pause. Zero means 1.
	Burst int `yaml:"burst" min:"0" doc:"requests allowed at once after a pause; default 1"`
}

// pace returns the limit as a rate.GCRA. The zero GCRA has no limit.
func (l HostLimit) pace() rate.GCRA {
	if l.Rate <= 0 {
		return rate.GCRA{}
	}
	return rate.GCRA{
		Interval: time.Duration(float64(time.Second) / float64(l.Rate)),
		Burst:    l.Burst,
	}
}

// Parked has the options of the store for parked deliveries.
type Parked struct {
	Bytes   stream.Size   `yaml:"bytes" doc:"size of all deliveries; beyond it the source waits"`
	History time.Duration `yaml:"history" doc:"how long ended deliveries are kept for queries; 10m if the store is almost full"`
}

// The values of Options.Exhausted.
const (
	exhaustedDeadLetter = "dead_letter"
	exhaustedKeep       = "keep"
)

const (
	defaultConnectTimeout = 10 * time.Second

	leastHistory = 10 * time.Minute

	// settleTime delays the deletion of ended deliveries. After a crash, a record is read again
	// unless its position is in a synced checkpoint. The sink then recognizes the record by its
	// delivery. So a delivery must stay until the position of its record is in a synced
	// checkpoint. This is certain if a checkpoint was synced at least settleTime after the
	// delivery ended, because the engine settles a parked record in less time than that.
	settleTime = time.Minute
)

// paymentSchedule is the default schedule: 16 attempts in 24 h 4 min.
var paymentSchedule = []time.Duration{
	15 * time.Second,
	15 * time.Second,
	30 * time.Second,
	3 * time.Minute,
	10 * time.Minute,
	20 * time.Minute,
	30 * time.Minute,
	30 * time.Minute,
	30 * time.Minute,
	time.Hour,
	3 * time.Hour,
	3 * time.Hour,
	3 * time.Hour,
	6 * time.Hour,
	6 * time.Hour,
}

// DefaultOptions returns options that send the record with POST, on paymentSchedule.
func DefaultOptions() *Options {
	return &Options{
		Method:         nethttp.MethodPost,
		Schedule:       Waits{List: slices.Clone(paymentSchedule)},
		Timeout:        30 * time.Second,
		ConnectTimeout: defaultConnectTimeout,
		Attempts:       256,
		PerHost:        16,
		Hosts:          10_000,
		Idle:           1000,
		Parked:         Parked{Bytes: parked.DefaultMaxBytes, History: 48 * time.Hour},
		Sign:           Sign{HMAC: HMAC{Algorithm: string(inbox.SHA256)}},
		Exhausted:      exhaustedDeadLetter,
		Async:          Async{Poll: defaultPoll, Max: time.Hour},
	}
}

// PreferredBatch implements stream.Preferred. All rows of a batch are stored in one commit.
func (o *Options) PreferredBatch() stream.BatchLimits { return stream.BatchLimits{Records: 500} }

// methods lists the HTTP methods that can be written literally. Any other text is an expression.
var methods = []string{
	nethttp.MethodGet,
	nethttp.MethodPost,
	nethttp.MethodPut,
	nethttp.MethodPatch,
	nethttp.MethodDelete,
}

// reserved lists headers that the sink or the connection sets.
var reserved = []string{
	"Connection",
	"Content-Length",
	"Host",
	"Idempotency-Key",
	"Keep-Alive",
	"Proxy-Authorization",
	"Proxy-Connection",
	"Te",
	"Trailer",
	"Transfer-Encoding",
	"Upgrade",
	headerWebhookID,
	headerWebhookTimestamp,
	headerWebhookSignature,
}

// Validate returns an error for an invalid option. It also reads the files with keys and
// authorities.
func (o *Options) Validate() error {
	if err := o.Allow.Validate(); err != nil {
		return stream.OptionErrorf("allow", "%w", err)
	}
	for name := range o.Headers {
		if reason := checkHeaderName(name); reason != "" {
			return stream.OptionErrorf("headers."+name, "%s", reason)
		}
	}
	for _, c := range []struct {
		key   string
		value time.Duration
		least time.Duration
	}{
		{"timeout", o.Timeout, time.Millisecond},
		{"connect_timeout", o.ConnectTimeout, time.Millisecond},
		{"parked.history", o.Parked.History, leastHistory},
	} {
		if c.value < c.least {
			return stream.OptionErrorf(c.key, "is %v; write at least %v", c.value, c.least)
		}
	}
	if o.Limit.Rate > 0 && o.Limit.pace().Interval > time.Hour || o.Limit.Burst < 0 {
		return stream.OptionErrorf("limit", "is below one request an hour, or its burst is "+
			"negative")
	}
	if o.Limit.Burst > 0 && o.Limit.Rate <= 0 {
		return stream.OptionErrorf("limit.burst", "needs rate, the requests a second")
	}
	if o.ConnectTimeout > o.Timeout && o.ConnectTimeout != defaultConnectTimeout {
		return stream.OptionErrorf("connect_timeout", "is %v, longer than timeout, which limits "+
			"the whole attempt to %v", o.ConnectTimeout, o.Timeout)
	}
	if o.Timeout > 5*time.Minute {
		return stream.OptionErrorf("timeout", "is %v; write at most 5m", o.Timeout)
	}
	for key, n := range map[string]int{
		"attempts": o.Attempts, "per_host": o.PerHost, "hosts": o.Hosts, "idle_connections": o.Idle,
	} {
		if n < 1 {
			return stream.OptionErrorf(key, "is %d; write at least 1", n)
		}
	}
	if o.Parked.Bytes < 1<<20 {
		return stream.OptionErrorf("parked.bytes", "is less than 1MiB")
	}
	if err := o.plan(); err != nil {
		return err
	}
	if err := o.programs.compileConditions(o); err != nil {
		return err
	}
	if err := o.Sign.validate(); err != nil {
		return err
	}
	if _, err := o.authorities(); err != nil {
		return stream.OptionErrorf("ca", "%w", err)
	}
	return nil
}

// plan creates the schedules of attempts and polls.
func (o *Options) plan() error {
	if o.Exhausted != exhaustedDeadLetter && o.Exhausted != exhaustedKeep {
		return stream.OptionErrorf("exhausted", "is not one of dead_letter, keep")
	}
	polling, err := o.Async.plan()
	if err != nil {
		return err
	}
	o.schedule = parked.Schedule{
		Waits:   o.Schedule.List,
		Jitter:  o.Jitter,
		Polling: polling,
		Keep:    o.Exhausted == exhaustedKeep,
	}
	key, policy := "schedule", o.Schedule.Policy
	switch {
	case policy != "" && o.Backoff != "":
		return stream.OptionErrorf("backoff", "schedule has a policy as well; remove one of them")
	case o.Backoff != "":
		key, policy = "backoff", o.Backoff
	case o.Schedule.Of != "":
		o.schedule.Waits = paymentSchedule
	}
	if policy != "" {
		if o.schedule.Waits, err = waitsOf(policy); err != nil {
			return &stream.OptionError{Key: key, Err: err}
		}
	}
	if err := o.schedule.Validate(); err != nil {
		return &stream.OptionError{Key: key, Err: err}
	}
	return nil
}

// checkHeaderName returns the reason why a header must not be set, or "".
func checkHeaderName(name string) string {
	const special = "!#$%&'*+-.^_`|~"
	if name == "" {
		return "the name is empty"
	}
	for _, c := range []byte(name) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') &&
			strings.IndexByte(special, c) < 0 {
			return fmt.Sprintf("the name has %q, which is not allowed in a header name", c)
		}
	}
	if slices.ContainsFunc(reserved, func(r string) bool { return strings.EqualFold(r, name) }) {
		return "the sink sets this header itself; remove it"
	}
	return ""
}
