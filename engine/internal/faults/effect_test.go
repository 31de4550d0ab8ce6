//go:build linux

package faults

// schedule selects the requests, connections or batches that meet a fault. faulty reports whether
// number n, counted from 0, is one of them.
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
	// pauses is like blocks, but the fault also pauses the worker for seconds, even if it occurs
	// once.
	pauses
	poisons // workers die: records become dead letters one by one
	rejects // every record is a dead letter: exit code 1
)

// as makes a case of d with the given name and schedule. e is the effect of the fault if it is
// always present. Effect and schedule determine the expected exit code and counts.
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
