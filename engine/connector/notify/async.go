package notify

import (
	"context"
	"errors"
	"fmt"
	nethttp "net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

// Async configures the polling of asynchronous operations. A receiver that answers a request with
// status 202 has started such an operation. The sink then polls a URL until the operation has
// ended, for at most the time Max. If Location is empty, the sink does not poll.
type Async struct {
	Location expr.Text     `yaml:"location" doc:"expression over a 202 response: the URL to poll"`
	Done     expr.Text     `yaml:"done"     doc:"condition on a poll's response: success"`
	Failed   expr.Text     `yaml:"failed"   doc:"condition on a poll's response: failure"`
	Poll     string        `yaml:"poll"     doc:"waits between polls: a policy as penstock backoff takes it"`
	Max      time.Duration `yaml:"max"      doc:"time from the 202 response to the last poll"`
}

const (
	defaultPoll  = "exponential base=1s factor=2 max=1m"
	maxOperation = 30 * 24 * time.Hour // bounds async.max
	maxLocation  = 2 << 10             // maximum length of a location in bytes
	leastPoll    = 10 * time.Millisecond
)

func (a *Async) isOn() bool { return a.Location != "" }

// plan returns the schedule of the polls.
func (a *Async) plan() (p parked.Polling, err error) {
	switch {
	case !a.isOn() && (a.Done != "" || a.Failed != ""):
		return p, stream.OptionErrorf("async.location", "is missing; write the URL to poll, such "+
			"as headers.location")
	case !a.isOn():
		return p, nil
	case a.Done == "":
		return p, stream.OptionErrorf("async.done", "is missing; write the condition under which "+
			"a poll's response ends the delivery")
	case a.Max < time.Second || a.Max > maxOperation:
		return p, stream.OptionErrorf("async.max", "is %v; write a time between 1s and 30 days",
			a.Max)
	}
	policy, err := backoff.Parse(a.Poll)
	if err != nil {
		return p, stream.OptionErrorf("async.poll", "%w", err)
	}
	p.Max = a.Max
	var at time.Duration
	for n, wait := range backoff.Delays(policy, nil) {
		if at += max(wait, leastPoll); n == parked.MaxPolls {
			return p, stream.OptionErrorf("async.poll", "makes more than %d polls in async.max "+
				"(%v); lengthen the waits", parked.MaxPolls, a.Max)
		}
		p.Waits = append(p.Waits, max(wait, leastPoll))
		if at >= a.Max {
			break
		}
	}
	if len(p.Waits) == 0 {
		return p, stream.OptionErrorf("async.poll", "makes no poll; raise its attempts")
	}
	return p, nil
}

// operation returns the asynchronous operation that a receiver has started with a 202 response.
func (s *Sink) operation(d *parked.Delivery, r *response) (o parked.Operation, err error) {
	e, err := r.evaluator(s.o.programs.location)
	if err != nil {
		return o, err
	}
	text, err := e.AppendText(nil, 0)
	if err != nil {
		return o, fmt.Errorf("async.location: %w", err)
	}
	base, err := url.Parse(d.URL)
	if err != nil {
		return o, errors.New("the URL is malformed")
	}
	if o.Location, o.Host, err = s.o.resolve(base, string(text)); err != nil {
		return o, fmt.Errorf("async.location: %w", err)
	}
	return o, nil
}

// resolve returns the absolute URL of a location, and its host:port. The receiver has chosen the
// location, so it is checked like the URL of a record: the options must allow its host.
func (o *Options) resolve(base *url.URL, location string) (string, string, error) {
	location = strings.TrimSpace(location)
	switch {
	case location == "":
		return "", "", errors.New("is empty")
	case len(location) > maxLocation:
		return "", "", fmt.Errorf(
			"has %d bytes, at most %d are possible", len(location), maxLocation,
		)
	}
	to, err := base.Parse(location)
	if err != nil {
		return "", "", errors.New("is not a URL")
	}
	if base.Scheme == "https" && to.Scheme != "https" {
		return "", "", errors.New("is not https, unlike the URL of the request")
	}
	u, host, err := o.Allow.Check(to.String())
	if err != nil {
		return "", "", err
	}
	return u.String(), host, nil
}

// pollRequest returns the request of a poll. It has the record's headers only if the poll goes to
// the same scheme, host and port as the record's own request, because these headers may contain
// credentials. It is not signed, because it has no body.
func (s *Sink) pollRequest(ctx context.Context, d *parked.Delivery) (*nethttp.Request, error) {
	u, _, err := s.o.Allow.Check(d.Operation.Location)
	if err != nil {
		return nil, err
	}
	req, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodGet, u.String(), nethttp.NoBody)
	if err != nil {
		return nil, errors.New("the location is malformed")
	}
	req.Header.Set("User-Agent", "penstock")
	if first, err := url.Parse(d.URL); err == nil && first.Scheme == u.Scheme &&
		first.Host == u.Host {
		if err := setHeaders(req.Header, d.Header); err != nil {
			return nil, err
		}
	}
	req.Header.Set(keyHeader, d.Key)
	return req, nil
}

// verdict is the result of one poll.
type verdict uint8

const (
	pollUnexpected  verdict = iota // a status without a meaning for polls, such as 401 or 404
	pollSuccess                    // the operation has succeeded
	pollNotReady                   // the operation is still running
	pollThrottled                  // polled too often
	pollServerError                // a failure that may be temporary
	pollFatal                      // the operation will never succeed
)

// String returns the verdict in the form that the delivery's history shows.
func (v verdict) String() string {
	return [...]string{
		"unexpected response", "success", "not ready", "throttled", "server error", "fatal",
	}[v]
}

// judgePoll returns the verdict on the response to a poll, and a text for the history. The verdict
// comes from the conditions async.done and async.failed or, if neither holds, from the status. In
// the latter case, status 410 means that the operation has failed.
func (p *programs) judgePoll(r *response) (verdict, string) {
	status := strings.TrimSpace(strconv.Itoa(r.status) + " " + nethttp.StatusText(r.status))
	undecided := ""
	for _, c := range []struct {
		key     string
		program *expr.Program
		means   verdict
	}{{"done", p.done, pollSuccess}, {"failed", p.failed, pollFatal}} {
		if c.program == nil {
			continue
		}
		is, err := holds(c.program, r)
		switch {
		case err != nil && undecided == "":
			undecided = fmt.Sprintf("; async.%s cannot be evaluated: %v", c.key, err)
		case is:
			return c.means, status + "; async." + c.key + " holds"
		}
	}
	v := pollVerdict(r.status, r.header.Get("Retry-After") != "")
	return v, v.String() + ": " + status + undecided
}

// pollVerdict returns the verdict that follows from the status alone.
func pollVerdict(status int, hasRetryAfter bool) verdict {
	switch {
	case status == nethttp.StatusGone:
		return pollFatal
	case status == nethttp.StatusTooManyRequests,
		status == nethttp.StatusServiceUnavailable && hasRetryAfter:
		return pollThrottled
	case status >= 500, status == nethttp.StatusRequestTimeout:
		return pollServerError
	case status >= 200 && status < 300, status == nethttp.StatusTooEarly:
		return pollNotReady
	}
	return pollUnexpected
}

// eventOf returns the event of a delivery for the verdict on a poll.
func eventOf(v verdict) parked.Event {
	switch v {
	case pollSuccess:
		return parked.Accept
	case pollFatal:
		return parked.Stop
	}
	return parked.Pending
}
