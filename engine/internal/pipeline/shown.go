package pipeline

import (
	"time"

	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// shown is the tree for the admin pages. Workers stand in it with the state and the reason that
// they have in routes.
func (e *Engine) shown(now time.Time, routes []status.Route) *status.Child {
	root := shownChild(e.Tree(), now)
	for i := range routes {
		r := &routes[i]
		for k := range r.Workers {
			if c := root.Find(r.Pipeline, r.Name, senderName, r.Workers[k].Name); c != nil {
				c.State = r.Workers[k].State
				if c.State != "NORMAL" {
					c.Reason = r.Workers[k].Reason
				}
			}
		}
	}
	return root
}

func shownChild(s supervise.Status, now time.Time) *status.Child {
	c := &status.Child{
		Name: s.Name, State: s.State.String(), Restarts: max(s.Starts, 1) - 1, Reason: stream.MaskURLs(s.Err), Since: s.Since.UTC(),
	}
	if !s.Since.IsZero() {
		c.Seconds = max(0, now.Sub(s.Since).Seconds())
	}
	if !s.Next.IsZero() {
		c.Next = max(0, s.Next.Sub(now).Seconds())
	}
	for _, below := range s.Children {
		c.Children = append(c.Children, *shownChild(below, now))
	}
	return c
}
