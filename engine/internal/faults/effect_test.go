//go:build linux

package faults

// schedule selects the requests, connections or batches in which a fault occurs. They are numbered
// from 0, and faulty reports whether number n is one of them.
type schedule struct {
	name   string
	faulty func(n int) bool
}

var (
	always     = schedule{"always", func(int) bool { return true }}
	firstThree = schedule{"first three", func(n int) bool { return n < 3 }}
	firstOne   = schedule{"first one", func(n int) bool { return n < 1 }}
	everyThird = schedule{"every third", func(n int) bool { return n%3 == 2 }}
)

// effect is the outcome of a run under a fault that is always present.
type effect int

const (
	blocks  effect = iota // nothing is delivered: exit code 1
	passes                // everything is delivered: exit code 0
	decides               // either outcome, if it is reported truthfully
	// Nothing is delivered: exit code 1. Even a single occurrence of the fault, such as a 401,
	// pauses the worker for seconds, which is not so for a fault of the kind blocks.
	pauses
	poisons // workers die: records become dead letters one by one
	rejects // every record is a dead letter: exit code 1
)

// as returns a case with the scenario d, the given name and the given schedule. e is the outcome of
// a run in which the fault is always present. From e and the schedule, as computes the exit codes
// and counts that the case expects.
func (d delivery) as(name string, e effect, when schedule) faultCase {
	d.when = when
	if d.stall == "" && (when.name != "always" || e == passes) {
		d.stall = "20s" // the run ends earlier by itself, even on a busy machine
	}
	c := faultCase{name: name}
	switch {
	case e == passes:
		c.holds = "everything is delivered"
	case e == decides:
		c.holds = "the exit code agrees with the receiver, and the next run delivers the rest"
		d.exits = []int{0, 1}
	case e == rejects && when.name == "always":
		c.holds = "every record is a dead letter, and the exit code is 1"
		d.count, d.dead = 50, 50
		d.exits = []int{1}
		d.keepsFailing = true
	case e == poisons && when.name == "always":
		c.holds = "every record is delivered or a dead letter"
		d.exits, d.dead = []int{0, 1}, -1
	case when.name == "always":
		c.holds = "nothing counts as delivered, the run ends with 1, and the next one " +
			"delivers everything"
		d.exits = []int{1}
	case e == rejects:
		c.holds = "every record is delivered or a dead letter"
		d.dead = -1
	default:
		c.holds = "everything is delivered, and only redelivered batches are repeated"
	}
	c.run = d.run
	c.slow = when.name == "every third"
	return c
}
