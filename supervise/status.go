package supervise

import (
	"fmt"
	"strings"
	"time"
)

// Status is a snapshot of a child, a group, a goroutine of a group, or a supervisor. The Children
// of a child are the supervisors and groups that run inside it. They register through their
// context, so it does not matter how they were started.
type Status struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Restart  Restart   `json:"restart"`            // Restart of a child
	Strategy *Strategy `json:"strategy,omitempty"` // Strategy of a supervisor; nil for other nodes
	Starts   uint64    `json:"starts"`
	// Since is the time of the last start, or of the end of a child that is not running.
	Since    time.Time `json:"since,omitzero"`
	Next     time.Time `json:"next,omitzero"`   // Waiting: earliest start
	Err      string    `json:"error,omitempty"` // error of its last end, without a stack
	Children []Status  `json:"children,omitempty"`
}

// Status returns the tree from s down. It is not atomic: the parts are visited one after the other.
func (s *Supervisor) Status() Status {
	s.refuseZero()
	s.mu.Lock()
	strategy := s.m.spec.Strategy
	status := Status{Name: s.name, State: s.stateLocked(), Strategy: &strategy, Since: s.begun,
		Starts: s.serves}
	var lives []liveChild // copied, because the parts within are visited without the lock
	for c := s.m.first; c != nil; c = c.next {
		status.Children = append(status.Children, s.childLocked(c))
		var l liveChild
		if is := s.lives[c]; is != nil {
			l = *is
		}
		lives = append(lives, l)
	}
	s.mu.Unlock()
	for i := range lives {
		status.Children[i].adopt(lives[i].within, lives[i].service)
	}
	return status
}

func (s *Supervisor) stateLocked() State {
	switch {
	case s.m.phase == notStarted:
		return Idle
	case s.m.phase < ending:
		return Running
	case s.m.phase == ending:
		return Halting
	case s.m.alive > 0:
		return Hanging
	}
	return Finished
}

func (s *Supervisor) childLocked(c *child) Status {
	status := Status{Name: c.Name, State: c.state, Restart: c.Child.Restart, Starts: c.incarnation}
	if c.incarnation > 0 {
		status.Since = s.begun.Add(c.since)
	}
	if c.state == Waiting {
		status.Next = s.begun.Add(s.m.startTime(c))
	}
	if c.err != nil {
		status.Err = firstLine(c.err)
	}
	return status
}

// String draws the tree with one line per node.
func (s Status) String() string {
	var b strings.Builder
	s.draw(&b, "", "")
	return b.String()
}

func (s Status) draw(b *strings.Builder, head, below string) {
	b.WriteString(head + s.Name)
	if s.Strategy != nil {
		fmt.Fprintf(b, " (%v)", *s.Strategy)
	}
	fmt.Fprintf(b, ": %v", s.State)
	if s.Starts > 1 {
		fmt.Fprintf(b, ", start %d", s.Starts)
	}
	if s.Err != "" {
		fmt.Fprintf(b, ", last error: %s", s.Err)
	}
	b.WriteString("\n")
	for i, c := range s.Children {
		if i < len(s.Children)-1 {
			c.draw(b, below+"├── ", below+"│   ")
		} else {
			c.draw(b, below+"└── ", below+"    ")
		}
	}
}
