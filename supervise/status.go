package supervise

import (
	"fmt"
	"strings"
	"time"
)

// Status is a child, or a supervisor with its children, at one moment. Beneath a child stand the supervisors and groups that
// run within it, however they were started: they find the tree in their context.
type Status struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Restart  Restart   `json:"restart"`            // of a child
	Strategy *Strategy `json:"strategy,omitempty"` // of a supervisor
	Starts   uint64    `json:"starts"`
	Since    time.Time `json:"since,omitzero"` // of its last start, or of its end when it does not run
	Next     time.Time `json:"next,omitzero"`  // waiting: it starts no sooner
	Err      string    `json:"error,omitempty"`
	Children []Status  `json:"children,omitempty"`
}

// Status returns the tree from s down. The parts are seen one after the other, not at one instant.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	strategy := s.m.spec.Strategy
	status := Status{Name: s.name, State: s.stateLocked(), Strategy: &strategy, Since: s.begun}
	if !s.begun.IsZero() {
		status.Starts = 1
	}
	var lives []life // a copy: what runs within is asked without the lock
	for c := s.m.first; c != nil; c = c.next {
		status.Children = append(status.Children, s.childLocked(c))
		var l life
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
	case s.m.phase == unborn:
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
		status.Next = s.begun.Add(s.m.turn(c))
	}
	if c.err != nil {
		status.Err, _, _ = strings.Cut(c.err.Error(), "\n") // of a panic, without the stack
	}
	return status
}

// String draws the tree, a line for each supervisor and child.
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
