//go:build linux

package faults

import (
	"os"
	"strings"
	"time"
)

// stateCases damage, hide or share the state directory.
func stateCases() (table []faultCase) {
	for _, x := range []struct {
		name, holds string
		prepare     func(r *rig)
		during      func(r *rig, p *process)
		heal        func(r *rig)
		exits       []int
		again       bool // a record may arrive again, because the state is gone
	}{
		{name: "state is a file", holds: "the run fails and delivers nothing", exits: []int{1, 2},
			prepare: func(r *rig) { r.write("state", "x") },
			heal:    func(r *rig) { r.check(os.Remove(r.path("state"))) }},
		{name: "state is a symlink to nowhere", holds: "the run fails and delivers nothing",
			exits:   []int{1, 2},
			prepare: func(r *rig) { r.check(os.Symlink("/nowhere/state", r.path("state"))) },
			heal:    func(r *rig) { r.check(os.Remove(r.path("state"))) }},
		{name: "state without permission", holds: "the run fails and delivers nothing",
			exits: []int{1, 2},
			prepare: func(r *rig) {
				r.write("state/x", "")
				r.chmod("state", 0o500)
			},
			heal: func(r *rig) { r.chmod("state", 0o700) }},
		{name: "checkpoint is a folder", holds: "the run fails and delivers nothing",
			exits:   []int{1, 2},
			prepare: func(r *rig) { r.write("state/checkpoint.log/x", "") },
			heal:    func(r *rig) { r.check(os.RemoveAll(r.path("state"))) }},
		{name: "checkpoint is garbage", holds: "the run says so, or delivers everything",
			exits: []int{0, 1, 2},
			again: true,
			prepare: func(r *rig) {
				r.write("state/checkpoint.log",
					strings.Repeat("garbage\n", 500))
			},
			heal: func(r *rig) { r.check(os.RemoveAll(r.path("state"))) }},
		{name: "checkpoint of zeros", holds: "the run says so, or delivers everything",
			exits:   []int{0, 1, 2},
			again:   true,
			prepare: func(r *rig) { r.write("state/checkpoint.log", strings.Repeat("\x00", 4096)) },
			heal:    func(r *rig) { r.check(os.RemoveAll(r.path("state"))) }},
		{name: "empty checkpoint", holds: "the run says so and delivers nothing", exits: []int{1},
			prepare: func(r *rig) { r.write("state/checkpoint.log", "") },
			heal:    func(r *rig) { r.check(os.RemoveAll(r.path("state"))) }},
		{name: "state deleted while running",
			holds: "the route stops within a sync, or everything was delivered",
			exits: []int{1}, again: true,
			during: func(r *rig, _ *process) {
				until(slack, func() bool { return r.read("state/checkpoint.log") != "" })
				r.check(os.RemoveAll(r.path("state")))
			},
			heal: func(*rig) {}},
		{name: "checkpoint deleted while running",
			holds: "the route stops within a sync, or everything was delivered",
			exits: []int{1}, again: true,
			during: func(r *rig, _ *process) {
				until(slack, func() bool { return r.read("state/checkpoint.log") != "" })
				r.check(os.Remove(r.path("state/checkpoint.log")))
			},
			heal: func(*rig) {}},
		{name: "a second process", holds: "it ends with 1 or 2, and the first is not disturbed",
			exits: []int{0},
			during: func(r *rig, _ *process) {
				until(slack, func() bool { return r.read("state/checkpoint.log") != "" })
				second := r.start(launch{args: []string{"run", "--once", "--json", "penstock.yaml"},
					asNobody: true})
				second.expect(1, 2)
			}},
	} {
		for _, from := range []source{spoolSource, tailSource} {
			d := delivery{
				source: from, prepare: x.prepare, during: x.during, heal: x.heal, exits: x.exits,
				asNobody: true,
				sink:     `http: { endpoints: ["{url}"], body: raw }`,
				receiver: func(r *rig, when schedule) *receiver { return r.receive(slowly, when, false) },
				when:     always, anyRedelivery: x.again, count: 4000,
				options: "checkpoint: { sync: 100ms }",
			}
			// x.during changes the state while the program runs. With at most two batches in
			// flight, the 80 batches take 2 s. So the change happens long before the end of the
			// run.
			if x.during != nil {
				d.count = 8000
				d.options += "\n    flow: { window: fixed, size: 2, abandon: 1s }"
			}
			table = append(table, faultCase{name: "state/" + x.name + "/" + from.name,
				holds: x.holds, run: d.run})
		}
	}
	return append(table, cutCheckpoints()...)
}

var slowly = reply{name: "slow", wait: 50 * time.Millisecond, answer: answers("200 OK")}

// cutCheckpoints returns cases in which a run is killed, its checkpoint file is cut, and another
// run follows. That run must resume from the ledger in the database, so that each row exists once.
func cutCheckpoints() (table []faultCase) {
	for _, share := range []string{"a third", "a half", "all but 1 byte"} {
		d := delivery{
			sink: `sqlite: { path: ./out.db, table: lines }`, count: 40_000,
			batch:  "{ records: 100, linger: 20ms }",
			stored: storedRows("out.db", "SELECT message FROM lines"), exactlyOnce: true,
			exits:         []int{0, -9},
			anyRedelivery: true,
			during: func(r *rig, p *process) {
				until(slack, func() bool { return len(r.read("state/checkpoint.log")) > 400 || !p.running() })
				_ = p.cmd.Process.Kill()
				p.wait(slack)
			},
			heal: func(r *rig) {
				text := r.read("state/checkpoint.log")
				n := map[string]int{"a third": len(text) / 3, "a half": len(text) / 2,
					"all but 1 byte": len(text) - 1}[share]
				r.check(os.Truncate(r.path("state/checkpoint.log"), int64(n)))
			},
		}
		table = append(table, faultCase{
			name:  "state/checkpoint cut to " + share,
			holds: "the ledger of the database decides: every row exists once", run: d.run,
		})
	}
	return table
}
