package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/failover"
	"github.com/penstock-io/penstock/stream"
)

// fake is a sink that fails to open before until. Close fails if it has not opened.
type fake struct {
	lane   string
	until  time.Time
	kind   string
	opened bool
	opens  *int // incremented by each Open that succeeds, if not nil
}

func (f fake) component() stream.Component {
	create := func(any, stream.Host) (any, error) {
		if f.kind == "appends" {
			return &appending{f}, nil
		}
		return &f, nil
	}
	return stream.Component{Role: stream.SinkRole, Name: "fake", New: create}
}

// Open implements stream.Sink.
func (f *fake) Open(_ context.Context, o stream.SinkOptions) error {
	if time.Now().Before(f.until) {
		return errors.New("not yet")
	}
	f.opened = true
	if f.opens != nil {
		*f.opens++
	}
	o.Lanes([]stream.Lane{{Name: f.lane}})
	return nil
}

// Close implements stream.Sink.
func (f *fake) Close() error {
	if !f.opened {
		return errors.New("not open")
	}
	return nil
}

type appending struct{ fake }

// StartToken implements stream.AppendSink.
func (*appending) StartToken() string { return "" }

// Sync implements stream.AppendSink.
func (*appending) Sync(context.Context) error { return nil }

func options(members ...fake) *failover.Options {
	o := new(failover.Options)
	for _, m := range members {
		o.Add(stream.Member{Component: m.component()})
	}
	return o
}

// TestOpen checks that the sink has the lanes of all open members, with the members' numbers. A
// member that cannot be opened at first adds its lanes once it is opened. The names of lanes stay.
func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		later, opens := time.Now().Add(time.Minute), 0
		o := options(fake{lane: "b", until: later, opens: &opens}, fake{lane: "b"}, fake{lane: "b"})
		s, err := failover.New(o, connectortest.NewHost(t))
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // guards lanes
		var lanes []string
		set := func(all []stream.Lane) {
			mu.Lock()
			defer mu.Unlock()
			lanes = nil
			for _, l := range all {
				lanes = append(lanes, fmt.Sprintf("%s: %d", l.Name, l.Limits.Standby))
			}
		}
		if err := s.Open(t.Context(), stream.SinkOptions{Lanes: set}); err != nil {
			t.Fatal(err)
		}
		check := func(when string, want ...string) {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(lanes, want) {
				t.Errorf("lanes %s %q, want %q", when, lanes, want)
			}
		}
		check("at the start", "b (failover 2): 1", "b (failover 3): 2")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		check("after two minutes", "b: 0", "b (failover 2): 1", "b (failover 3): 2")
		if opens != 1 {
			t.Errorf("the first sink was opened %d times, want once", opens)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRefused checks that invalid members are refused: too few, one that appends to a file, and one
// that is a failover sink itself. It also checks that Open fails if no member can be opened.
func TestRefused(t *testing.T) {
	h := connectortest.NewHost(t)
	for want, o := range map[string]*failover.Options{
		"the number of sinks is 1, want 2 to 16":   options(fake{}),
		"failover[1]: sink fake appends to a file": options(fake{}, fake{kind: "appends"}),
		"is a failover itself; add its sinks to":   nested(),
	} {
		if _, err := failover.New(o, h); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	down := time.Now().Add(time.Hour)
	s, err := failover.New(options(fake{until: down}, fake{until: down}), h)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Open(t.Context(), stream.SinkOptions{Lanes: func([]stream.Lane) {}})
	if err == nil || strings.Count(err.Error(), "not yet") != 2 {
		t.Errorf("Open of members that are all down returns %v", err)
	}
}

func nested() *failover.Options {
	o := options(fake{})
	o.Add(stream.Member{Component: failover.Component(), Options: options(fake{}, fake{})})
	return o
}
