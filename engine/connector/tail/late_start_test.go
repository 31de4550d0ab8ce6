package tail_test

import (
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/tail"
)

// TestLateRouteStartsAtTheEnd checks that a route that is added later begins at the ends of the
// files (start: end). It must not matter whether the files were read by an earlier process, and are
// only listed since.
func TestLateRouteStartsAtTheEnd(t *testing.T) {
	for name, restart := range map[string]bool{"same process": false, "next process": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(o *tail.Options) { o.Start = "end" }, func(t *testing.T, p *fixture) {
				w := newWriter(t, p.dir, time.Now())
				w.text("a.log", "before the start\n")
				p.start(false)
				p.pump(3 * time.Second)
				w.append("a.log", 3)
				p.pump(5 * time.Second)
				if restart {
					p.kill()
					p.start(false)
					p.pump(5 * time.Second)
				}
				late, read := p.withSecond(), len(w.ledger)
				p.setRoutes()
				late.open(p.source, false)
				p.pump(5 * time.Second)
				w.append("a.log", 1)
				p.pump(5 * time.Second)
				p.want(w.ledger...)
				late.want(w.ledger[read:]...)
			})
		})
	}
}
