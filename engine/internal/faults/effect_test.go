//go:build linux

package faults

// schedule reports whether the request, connection or batch with this number, from 0, meets the
// fault.
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

// effect is the outcome of a run whose receiver always behaves in one way.
type effect int

const (
	blocks  effect = iota // nothing is delivered: exit code 1
	passes                // everything is delivered: exit code 0
	decides               // either, but truthfully
	// as blocks, and the worker is then paused for seconds: one such reply is enough
	pauses
	poisons // workers die: records become dead letters one by one
	rejects // every record is a dead letter: exit code 1
)

// as returns a case of the delivery. The effect and the schedule determine the expected exit code
// and counts.
func (d delivery) as(name string, e effect, when schedule) faultCase {
	d.when = when
	if d.stall == "" && (when.name != "always" || e == passes) {
		d.stall = "20s" // the run ends by itself before, however busy the machine is
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
