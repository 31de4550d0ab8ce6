package tap

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func drain(s *Subscription) (out []Sample) {
	for {
		select {
		case x := <-s.C():
			out = append(out, x)
		default:
			return out
		}
	}
}

func record(i int) Sample {
	return Sample{ID: fmt.Sprint(i), Outcome: "kept", Record: json.RawMessage(`{}`)}
}

func TestOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Registry
		r := g.Route("p/r")
		if r.Active() {
			t.Error("a route that nobody taps is active")
		}
		r.Offer(Stage{}, 5, func(int) Sample { t.Error("a record is sampled for nobody"); return Sample{} })
		all, err := g.Subscribe("p/r", "", 5)
		if err != nil || !r.Active() {
			t.Fatal(err)
		}
		sink, err := g.Subscribe("p/r", "sink", 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			r.Offer(Stage{}, 100, record)
			r.Offer(Stage{Index: -1}, 100, record)
		}
		if got := drain(all); len(got) != 10 || got[0].Stage != "source" || got[0].Route != "p/r" ||
			got[0].At.IsZero() {
			t.Errorf("%d samples of two stages with a rate of 5: %+v", len(got), got)
		}
		if got := drain(sink); len(got) != 1 || got[0].Stage != "sink" {
			t.Errorf("%d samples of the sink: %+v", len(got), got)
		}
		time.Sleep(time.Second)
		r.Offer(Stage{}, 100, record)
		var ids []string
		for _, x := range drain(all) {
			ids = append(ids, x.ID)
		}
		if strings.Join(ids, " ") != "0 50 99" {
			t.Errorf("a batch gives the samples %v", ids)
		}
		sink.Close()
		all.Close()
		if r.Active() || g.count != 0 {
			t.Error("the route is active after the last subscription")
		}
	})
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Registry
		s, err := g.Subscribe("p/r", "", MaxRate)
		if err != nil {
			t.Fatal(err)
		}
		big := func(int) Sample { return Sample{Record: json.RawMessage(`"` + strings.Repeat("x", 2*MaxText) + `"`)} }
		r := g.Route("p/r")
		for range maxQueued + 7 {
			r.Offer(Stage{}, 1, big)
		}
		got := drain(s)
		if len(got) != maxQueued || len(got[0].Truncated) != MaxText || got[0].Record != nil {
			t.Errorf("%d samples, the first with %d bytes", len(got), len(got[0].Truncated))
		}
		r.Offer(Stage{}, 1, record)
		if got := drain(s); got[0].Skipped != 7 {
			t.Errorf("%d samples were skipped, want 7", got[0].Skipped)
		}
		for range maxSubscriptions - 1 {
			if _, err := g.Subscribe("p/other", "", 1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := g.Subscribe("p/r", "", 1); !errors.Is(err, ErrBusy) {
			t.Errorf("one subscription too many: %v", err)
		}
	})
}

func TestStageMatches(t *testing.T) {
	for _, c := range []struct {
		stage Stage
		text  string
		want  bool
	}{
		{Stage{}, "", true}, {Stage{}, "source", true}, {Stage{}, "0", false},
		{Stage{Index: -1}, "sink", true}, {Stage{Index: -1}, "source", false},
		{Stage{2, "where"}, "where", true}, {Stage{2, "where"}, "2", true}, {Stage{2, "where"}, "2:where", true},
		{Stage{2, "where"}, "1", false}, {Stage{2, "where"}, "parse", false}, {Stage{1, "sink"}, "1", true},
	} {
		if got := c.stage.Matches(c.text); got != c.want {
			t.Errorf("%v matches %q: %v", c.stage, c.text, got)
		}
	}
}

func BenchmarkUnused(b *testing.B) {
	r := new(Registry).Route("p/r")
	for b.Loop() {
		if r.Active() {
			b.Fatal("active")
		}
	}
}
