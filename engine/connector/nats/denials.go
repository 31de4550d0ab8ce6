package nats

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	natsgo "github.com/nats-io/nats.go"
)

// denials are the permissions that the server has refused. It reports them beside the requests,
// which then get no response. It is safe for concurrent use.
type denials struct {
	mu      sync.Mutex // guards the fields below
	last    error
	subject map[string]error // of publications, at most maxDenials
	changed chan struct{}    // closed and replaced by add
}

// maxDenials bounds the remembered subjects.
const maxDenials = 100

func newDenials() *denials {
	return &denials{subject: make(map[string]error), changed: make(chan struct{})}
}

var deniedPublish = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]*)"`)

// add notes an error of the connection if it is a refused permission.
func (d *denials) add(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
	if m := deniedPublish.FindStringSubmatch(err.Error()); m != nil {
		if len(d.subject) >= maxDenials {
			clear(d.subject)
		}
		d.subject[m[1]] = err
	}
	close(d.changed)
	d.changed = make(chan struct{})
}

// of returns the denial of publications to a subject since forget, or nil, and a channel that is
// closed with the next denial of any.
func (d *denials) of(subject string) (next <-chan struct{}, denied error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed, d.subject[subject]
}

// forget drops the denial of a subject: the permission may have been granted meanwhile.
func (d *denials) forget(subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.subject, subject)
}

// explain adds the last denial to an error of a request without a response.
func (d *denials) explain(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || d.last == nil {
		return err
	}
	return fmt.Errorf("the user may not do this: grant the permission: %w (%w)", d.last, err)
}
