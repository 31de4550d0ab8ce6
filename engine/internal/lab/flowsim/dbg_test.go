package flowsim_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/engine/internal/lab/flowsim"
	"github.com/penstock-io/penstock/flow/control"
)

func TestDbg(t *testing.T) {
	fs := families(true)
	for _, f := range fs {
		fmt.Fprintln(os.Stderr, f)
		seed := uint64(1)
		fmt.Sscan(os.Getenv("DBG_SEED"), &seed)
		s := parse(t, f.text(false))
		type row struct{ ok, bad, goodfail, probes, retry int }
		var rows [200]row
		running := map[uint64]control.Command{}
		attempts := map[uint64]int{}
		inflight := [200]int{}
		see := func(e *control.Event, do []control.Command) {
			sec := int(e.Now / time.Second)
			r := &rows[sec]
			if e.Kind == control.Answer {
				c := running[e.ID]
				delete(running, e.ID)
				switch {
				case e.Outcome == control.Delivered:
					r.ok++
				case s.Bad.Hits(seed, c.Seq):
					r.bad++
				default:
					r.goodfail++
				}
			}
			for _, c := range do {
				if c.Kind == control.Start {
					running[c.ID] = c
					if c.Reason == control.Probe {
						r.probes++
					}
					if attempts[c.Seq]++; attempts[c.Seq] > 1 {
						r.retry++
					}
				}
			}
			inflight[sec] = len(running)
		}
		figures, err := flowsim.Run(s, find(t, "queue"),
			flowsim.Options{Seed: seed, Trace: see, Adjust: func(c *control.Config) {
				c.Retry = backoff.Fixed(badRetry)
				c.Waiting.Cost = 1e6
			}})
		if err != nil {
			t.Error(err)
		}
		fmt.Println(figures)
		for i := range rows {
			if i*int(time.Second) < int(125*time.Second) {
				fmt.Println(i, "ok", rows[i].ok, "bad", rows[i].bad, "goodfail", rows[i].goodfail, "probes", rows[i].probes, "retry", rows[i].retry, "inflight", inflight[i])
			}
		}
	}
}
