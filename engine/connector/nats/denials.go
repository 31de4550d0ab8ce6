package nats

import (
	"errors"
	"fmt"
	"regexp"
	"sync"

	natsgo "github.com/nats-io/nats.go"
)

// denials remembers errors about permissions that the server has denied to the user. The server
// reports a denial as an error of the connection. The denied request itself gets no response. A
// denials is safe for concurrent use.
type denials struct {
	mu      sync.Mutex // guards the fields below
	last    error
	subject map[string]error // by subject of a publication, at most maxDenials
	changed chan struct{}    // closed and replaced by add
}

// maxDenials is the maximum number of subjects with a remembered denial.
const maxDenials = 100

func newDenials() *denials {
	return &denials{subject: make(map[string]error), changed: make(chan struct{})}
}

var deniedPublish = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]*)"`)

// add is called with each error of the connection. It remembers err if err means that a permission
// was denied.
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

// of returns the error of the last refusal to publish to a subject, or nil if there was none since
// forget was called for the subject. It also returns a channel, next, that is closed when the
// server next denies any permission.
func (d *denials) of(subject string) (next <-chan struct{}, denied error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed, d.subject[subject]
}

// forget drops the denial of a subject before the next attempt, because the permission may have
// been granted meanwhile.
func (d *denials) forget(subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.subject, subject)
}

// explain adds the last denial, if any, and a remedy to err. It is for errors of requests that got
// no response.
func (d *denials) explain(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || d.last == nil {
		return err
	}
	return fmt.Errorf("the user may not do this: grant the permission: %w (%w)", d.last, err)
}
