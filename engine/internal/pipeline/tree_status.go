package pipeline

import (
	"time"

	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// treeStatus returns the tree of the engine's parts for the admin pages. It adds the workers
// of routes.
func (e *Engine) treeStatus(now time.Time, routes []status.Route) *status.Child {
	root := childStatus(e.Tree(), now)
	for i := range routes {
		r := &routes[i]
		sender := root.Find(r.Pipeline, r.Name, senderName)
		if sender == nil {
			continue
		}
		for k := range r.Workers {
			w := &r.Workers[k]
			c := status.Child{
				Name: w.Name, State: w.State, Since: sender.Since, Seconds: sender.Seconds,
			}
			if w.State != "NORMAL" {
				c.Reason = w.Reason
			}
			sender.Children = append(sender.Children, c)
		}
	}
	return root
}

func childStatus(s supervise.Status, now time.Time) *status.Child {
	c := &status.Child{
		Name: s.Name, State: s.State.String(), Restarts: max(s.Starts, 1) - 1,
		Reason: stream.MaskURLs(s.Err), Since: s.Since.UTC(),
	}
	if !s.Since.IsZero() {
		c.Seconds = max(0, now.Sub(s.Since).Seconds())
	}
	if !s.Next.IsZero() {
		c.Next = max(0, s.Next.Sub(now).Seconds())
	}
	for _, below := range s.Children {
		c.Children = append(c.Children, *childStatus(below, now))
	}
	return c
}
