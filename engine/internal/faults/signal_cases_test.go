//go:build linux

package faults

import (
	"fmt"
	"syscall"
	"time"
)

// sequence is a sequence of signals to a process. It also has the exit codes that a daemon and a
// run with --once must return after it.
type sequence struct {
	name    string
	send    func(p *process)
	serve   func(p *process) // sends to a daemon instead of send; nil means send
	daemon  []int
	once    []int
	limit   time.Duration // maximum time until the process ends
	atStart bool          // send at once, before anything is delivered
	killed  bool          // up to checkpoint.replay may be repeated
}

const (
	drain = 3*time.Second + slack
	slack = 10 * time.Second // on a busy machine
)

func signals(list ...syscall.Signal) func(p *process) {
	return func(p *process) {
		for i, s := range list {
			if i > 0 {
				pause(100 * time.Millisecond)
			}
			p.signal(s)
		}
	}
}

var sequences = []sequence{
	{name: "SIGTERM", send: signals(syscall.SIGTERM), daemon: []int{0, 1}, once: []int{0, 1},
		limit: drain},
	{name: "SIGINT", send: signals(syscall.SIGINT), daemon: []int{0, 1}, once: []int{0, 1},
		limit: drain},
	{name: "SIGHUP", send: signals(syscall.SIGHUP), // a daemon reloads
		serve: signals(syscall.SIGHUP, syscall.SIGTERM), daemon: []int{0, 1}, once: []int{0, 1},
		limit: drain},
	{name: "SIGTERM twice", send: signals(syscall.SIGTERM, syscall.SIGTERM), daemon: []int{0, 1},
		once:  []int{0, 1},
		limit: slack, killed: true},
	{name: "SIGINT, SIGTERM", send: signals(syscall.SIGINT, syscall.SIGTERM), daemon: []int{0, 1},
		once:  []int{0, 1},
		limit: slack, killed: true},
	{name: "SIGKILL", send: signals(syscall.SIGKILL), daemon: []int{-9}, once: []int{-9},
		limit: slack, killed: true},
	{name: "SIGSTOP, SIGCONT, SIGTERM", send: signals(syscall.SIGSTOP, syscall.SIGCONT,
		syscall.SIGTERM),
		daemon: []int{0, 1}, once: []int{0, 1}, limit: drain},
	{name: "SIGTERM at the start", send: signals(syscall.SIGTERM), daemon: []int{0, 1, -15},
		once:  []int{0, 1, -15},
		limit: drain, atStart: true},
	{name: "SIGWINCH, SIGURG, SIGTERM", send: signals(syscall.SIGWINCH, syscall.SIGURG,
		syscall.SIGTERM),
		daemon: []int{0, 1}, once: []int{0, 1}, limit: drain},
}

// interrupted is a sink that signals interrupt.
type interrupted struct {
	name string
	make func() delivery
}

// interruptedSinks are the sinks of the signal cases. A stop proceeds differently with each of
// them, because its receiver is fast, slow, hanging, failing, refusing or throttling. A batch is 4
// KiB, and a kill may repeat 64 KiB.
var interruptedSinks = []interrupted{
	{"file", func() delivery {
		return delivery{sink: `file: { path: ./out.log, format: raw }`, stored: storedIn("out.log"),
			exactlyOnce: true}
	}},
	{"sqlite", func() delivery {
		return delivery{
			sink:   `sqlite: { path: ./out.db, table: lines }`,
			stored: storedRows("out.db", "SELECT message FROM lines"), exactlyOnce: true,
		}
	}},
	{"slow http", func() delivery {
		return toReceiver(reply{name: "slow", wait: 30 * time.Millisecond,
			answer: answers("200 OK")})
	}},
	{"hanging http", func() delivery { return toReceiver(reply{name: "hangs", discard: true, end: hang}) }},
	{"failing http", func() delivery {
		return toReceiver(reply{name: "500", discard: true,
			answer: answers("500 No")})
	}},
	{"refusing http", func() delivery {
		return toReceiver(reply{name: "401", discard: true,
			answer: answers("401 No")})
	}},
	{"throttling http", func() delivery {
		return toReceiver(reply{name: "503", discard: true,
			answer: answers("503 No", "Retry-After: 600")})
	}},
	{"slow exec", func() delivery { return toWorker("sleep 0.05; GOOD") }},
	{"hanging exec", func() delivery { return toWorker("[ -e healed ] || exec sleep 60; GOOD") }},
}

func toReceiver(rep reply) delivery {
	return delivery{
		sink:     `http: { endpoints: ["{url}"], body: raw }`,
		receiver: func(r *rig, when schedule) *receiver { return r.receive(rep, when, false) },
	}
}

func toWorker(text string) delivery {
	return delivery{
		sink:   `exec: { command: [bash, ./worker.sh], grace: 1s }`,
		stored: storedIn("got/done.*"),
		prepare: func(r *rig) {
			r.write("got/README", "")
			r.write("worker.sh", expand(text))
		},
		heal: func(r *rig) { r.write("healed", "") },
	}
}

// signalCases returns a case for each sequence of signals and each sink. The program runs
// alternately as a daemon and with --once.
func signalCases() (table []faultCase) {
	for i, s := range sequences {
		for j, sink := range interruptedSinks {
			table = append(table, signalCase(s, sink, (i+j)%2 == 0, sources[(i+j)%2]))
		}
	}
	return table
}

func signalCase(s sequence, sink interrupted, daemon bool, from source) faultCase {
	d := sink.make()
	d.source, d.when, d.daemon, d.later = from, always, daemon, true
	d.count = 4000
	if d.exactlyOnce {
		d.count = 40_000 // these sinks are quick
	} else if d.receiver != nil {
		d.count = 20_000
	}
	d.batch, d.batchRecords = "{ bytes: 4KiB, records: 100, linger: 20ms }", 108
	d.options = "checkpoint: { replay: 64KiB }"
	d.stall = "60s"
	d.anyRedelivery = !s.killed
	if s.killed {
		d.repeats = 64 << 10 / len(record(0, 20))
	}
	mode := "once"
	d.exits = s.once
	if daemon {
		mode, d.exits = "daemon", s.daemon
	}
	d.mute = s.killed
	d.during = func(r *rig, p *process) {
		if !s.atStart {
			until(slack, func() bool { return r.read("state/checkpoint.log") != "" })
			if d.exactlyOnce {
				pause(20 * time.Millisecond)
			} else {
				pause(300 * time.Millisecond) // the first batches are in flight
			}
		}
		if daemon && s.serve != nil {
			s.serve(p)
		} else {
			s.send(p)
		}
		begun := time.Now()
		p.wait(hangLimit)
		if took := time.Since(begun); took > s.limit {
			r.errorf("the process ended %v after the signal, want %v at most",
				took.Round(time.Millisecond), s.limit)
		}
	}
	if d.heal == nil {
		d.heal = func(*rig) {}
	}
	return faultCase{
		name:  fmt.Sprintf("signals/%s/%s/%s/%s", s.name, sink.name, mode, from.name),
		holds: fmt.Sprintf("it ends within %v, and the next run delivers the rest", s.limit),
		run:   d.run,
	}
}
