//go:build unix

package child_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/child"
)

// echo is a session that counts the lines it receives.
type echo struct {
	p     *child.Process
	heard int
	busy  bool
	ended chan error
}

func (e *echo) Serve(context.Context) error {
	in := bufio.NewReader(e.p)
	for {
		if _, err := in.ReadString('\n'); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		e.heard++
	}
}

func (e *echo) End(err error)            { e.ended <- err }
func (e *echo) Did() (worked, busy bool) { return e.heard > 0, e.busy }

// TestFleetWaits checks that the wait grows if children end without completing any work. A child
// that has completed work, or has died with work in progress, must be replaced at once.
func TestFleetWaits(t *testing.T) {
	for _, c := range []struct {
		name, script string
		busy         bool
		ends         int
		least, most  time.Duration
	}{
		{"idle", "exit 1", false, 4, 50*time.Millisecond + 100*time.Millisecond +
			200*time.Millisecond, patience},
		{"worked", "echo; exit 1", false, 10, 0, patience},
		{"busy", "exit 1", true, 10, 0, patience},
	} {
		t.Run(c.name, func(t *testing.T) {
			ended := make(chan error)
			f, err := child.NewFleet(child.FleetOptions[*echo]{
				Name: "f", Names: []string{"one"},
				Spec: func(string) child.Spec { return sh(c.script) },
				NewSession: func(p *child.Process) *echo {
					return &echo{p: p, busy: c.busy, ended: ended}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			h := connectortest.NewHost(t)
			began := time.Now()
			h.Go("fleet", f.Serve)
			for range c.ends {
				err := <-ended
				if e, ok := errors.AsType[*child.ExitError](err); !ok || e.Code != 1 {
					t.Errorf("ended with %v", err)
				}
			}
			took := time.Since(began)
			go func() {
				for range ended { // drain further ends until the fleet stops
				}
			}()
			if err := h.Stop(); err != nil {
				t.Error(err)
			}
			close(ended)
			if took < c.least || took > c.most {
				t.Errorf("%d ends took %v, want %v to %v", c.ends, took, c.least, c.most)
			}
			_, err = f.Slots()[0].Session()
			if down, ok := errors.AsType[*child.DownError](err); !ok || down.Err == nil ||
				c.name == "idle" && down.Ends < 4 {
				t.Errorf("the slot says %v", down)
			}
		})
	}
}
