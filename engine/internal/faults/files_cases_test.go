//go:build linux

package faults

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// disturbance is a change of a source's files. Either the function `before` makes the change before
// the program starts, or the function `during` makes it while the program reads.
type disturbance struct {
	name   string
	holds  string
	before func(r *rig)
	during func(r *rig, p *process)
	heal   func(r *rig)
	tail   []int // exit codes with the source tail; nil: not with this source
	spool  []int // with spool_dir
	count  int   // records, if not 2000
	lost   bool  // records are destroyed before they can be read
	later  bool  // records appear after the first run has begun
}

const (
	allArrive = "every record arrives once"
	namesIt   = "the run ends with 1 and names what it could not read; the next run delivers it"
	truthful  = "no record that exists is lost, none is invented"
)

var ok, failed, either = []int{0}, []int{1}, []int{0, 1}

// reading waits until the program has delivered some records into out.log.
func reading(r *rig, p *process) {
	until(hangLimit, func() bool { return len(r.read("out.log")) > 0 || !p.running() })
}

func (r *rig) rename(from, to string) { r.check(os.Rename(r.path(from), r.path(to))) }

func (r *rig) fifo(name string) { r.check(syscall.Mkfifo(r.path(name), 0o644)) }

func (r *rig) chmod(name string, mode os.FileMode) { r.check(os.Chmod(r.path(name), mode)) }

var disturbances = []disturbance{
	{name: "a last line without end", holds: "the whole lines arrive", tail: ok,
		before: func(r *rig) { r.appendTo("in/b.log", "r0020") }},
	{name: "an empty file", holds: allArrive, tail: ok, spool: ok,
		before: func(r *rig) { r.write("in/c.log", "") }},
	{name: "a folder named like a file", holds: allArrive, tail: ok, spool: ok,
		before: func(r *rig) { r.write("in/c.log/x", "") }},
	{name: "a FIFO named like a file", holds: allArrive, tail: ok, spool: ok,
		before: func(r *rig) { r.fifo("in/c.log") }},
	{name: "a symlink to nowhere", holds: allArrive, tail: ok, spool: ok,
		before: func(r *rig) { r.check(os.Symlink("/nowhere", r.path("in/c.log"))) }},
	{name: "a symlink to itself", holds: allArrive, tail: ok, spool: ok,
		before: func(r *rig) { r.check(os.Symlink("c.log", r.path("in/c.log"))) }},
	{name: "a hard link to a file", holds: allArrive, tail: ok, spool: ok,
		before: func(r *rig) { r.check(os.Link(r.path("in/a.log"), r.path("in/z.log"))) }},
	{name: "a damaged gzip file", holds: namesIt, tail: failed, spool: failed,
		before: func(r *rig) {
			r.write("in/c.log",
				"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03garbage")
		},
		heal: func(r *rig) { r.check(os.Remove(r.path("in/c.log"))) }},
	{name: "a gzip file that ends early", holds: namesIt, tail: failed, spool: failed,
		before: func(r *rig) { r.write("in/c.log", "\x1f\x8b\x08\x00") },
		heal:   func(r *rig) { r.check(os.Remove(r.path("in/c.log"))) }},
	{name: "a damaged zstd file", holds: namesIt, tail: failed, spool: failed,
		before: func(r *rig) { r.write("in/c.log", "\x28\xb5\x2f\xfdgarbage garbage") },
		heal:   func(r *rig) { r.check(os.Remove(r.path("in/c.log"))) }},
	{name: "an unreadable file", holds: namesIt, tail: failed, spool: failed,
		before: func(r *rig) { r.chmod("in/a.log", 0) },
		heal:   func(r *rig) { r.chmod("in/a.log", 0o644) }},
	{name: "an unreadable folder", holds: namesIt, tail: failed, spool: failed,
		before: func(r *rig) { r.chmod("in", 0) },
		heal:   func(r *rig) { r.chmod("in", 0o755) }},
	{name: "a folder without search permission", holds: namesIt, tail: failed, spool: failed,
		before: func(r *rig) { r.chmod("in", 0o444) },
		heal:   func(r *rig) { r.chmod("in", 0o755) }},
	{name: "a missing folder", holds: "the run does not say that all is well, " +
		"or the next run delivers", tail: either,
		spool:  either,
		before: func(r *rig) { r.rename("in", "away") },
		heal:   func(r *rig) { r.rename("away", "in") }, later: true},
	{name: "appended while read", holds: "the records of the start arrive, the others with " +
		"the next run", tail: ok,
		spool: ok, count: 4000, later: true,
		before: func(r *rig) {
			r.appendTo("in/b.log",
				strings.Join(records(2000, 3000, 20), "\n")+"\n")
		},
		during: func(r *rig, p *process) {
			reading(r, p)
			for n := 3000; n < 4000; n += 10 {
				r.appendTo("in/b.log", strings.Join(records(n, n+10, 20), "\n")+"\n")
			}
		},
		heal: func(*rig) {}},
	{name: "half a line appended, then the rest", holds: allArrive, tail: ok, count: 2001,
		later:  true,
		before: func(r *rig) { r.appendTo("in/b.log", record(2000, 20)[:10]) },
		during: func(r *rig, p *process) {
			reading(r, p)
			r.appendTo("in/b.log", record(2000, 20)[10:]+"\n")
		},
		heal: func(*rig) {}},
	{name: "renamed while read", holds: allArrive, tail: ok,
		during: func(r *rig, p *process) {
			reading(r, p)
			r.rename("in/a.log", "in/a2.log")
			r.rename("in/b.log", "in/b2.log")
		},
		heal: func(*rig) {}},
	{name: "rotated between two runs", holds: allArrive, tail: ok, count: 3000,
		heal: func(r *rig) {
			r.rename("in/b.log", "in/b-1.log")
			r.write("in/b.log", strings.Join(records(2000, 3000, 20), "\n")+"\n")
		}, later: true},
	{name: "copied and truncated between two runs", holds: allArrive, tail: ok, count: 3000,
		heal: func(r *rig) {
			r.write("in/b-1.log", r.read("in/b.log"))
			r.check(os.Truncate(r.path("in/b.log"), 0))
			r.appendTo("in/b.log", strings.Join(records(2000, 3000, 20), "\n")+"\n")
		}, later: true},
	{name: "truncated while read", holds: truthful, tail: either, spool: either, lost: true,
		during: func(r *rig, p *process) {
			reading(r, p)
			r.check(os.Truncate(r.path("in/b.log"), 26*int64(len(record(0, 20))+1)))
		}},
	{name: "deleted while read", holds: truthful, tail: either, spool: either, lost: true,
		during: func(r *rig, p *process) {
			reading(r, p)
			r.check(os.Remove(r.path("in/b.log")))
		}},
	{name: "the folder moved away while read", holds: truthful, tail: either, spool: either,
		lost: true,
		during: func(r *rig, p *process) {
			reading(r, p)
			r.rename("in", "away")
		},
		heal: func(r *rig) { r.rename("away", "in") }},
	{name: "permission withdrawn while read", holds: "nothing is lost", tail: either, spool: either,
		during: func(r *rig, p *process) {
			reading(r, p)
			r.chmod("in/b.log", 0)
		},
		heal: func(r *rig) { r.chmod("in/b.log", 0o644) }},
	{name: "files appear while others are read", holds: "nothing is lost", tail: ok, spool: ok,
		count: 2100,
		later: true,
		during: func(r *rig, p *process) {
			reading(r, p)
			for n := 2000; n < 2100; n += 10 {
				r.write(fmt.Sprintf("in/new%d.log", n),
					strings.Join(records(n, n+10, 20), "\n")+"\n")
			}
		},
		heal: func(*rig) {}},
	{name: "a name with a line break", holds: allArrive, tail: ok, spool: ok, count: 2010,
		before: func(r *rig) {
			r.write("in/x\ny.log",
				strings.Join(records(2000, 2010, 20), "\n")+"\n")
		}},
	{name: "a name that is no UTF-8", holds: allArrive, tail: ok, spool: ok, count: 2010,
		before: func(r *rig) {
			r.write("in/x\xff\xfe.log",
				strings.Join(records(2000, 2010, 20), "\n")+"\n")
		}},
	{name: "a name of 255 bytes", holds: allArrive, tail: ok, spool: ok, count: 2010,
		before: func(r *rig) {
			r.write("in/"+strings.Repeat("n", 251)+".log",
				strings.Join(records(2000, 2010, 20), "\n")+"\n")
		}},
}

// fileCases combines each disturbance with both file sources.
func fileCases() (table []faultCase) {
	for _, x := range disturbances {
		if x.tail != nil {
			table = append(table, fileCase(x, tailSource, x.tail))
		}
		if x.spool != nil {
			table = append(table, fileCase(x, spoolSource, x.spool))
		}
	}
	return table
}

func fileCase(x disturbance, from source, exits []int) faultCase {
	fill := from.fill
	from.fill = func(r *rig, lines []string) { fill(r, lines[:2000]) }
	d := delivery{
		source: from, count: max(x.count, 2000), batch: "{ records: 50, linger: 20ms }",
		sink: `file: { path: ./out.log, format: raw }`, stored: storedIn("out.log"),
		exactlyOnce: !x.lost,
		repeats:     2000,
		prepare:     x.before, during: x.during, heal: x.heal, exits: exits, lostAtSource: x.lost,
		later:    x.later,
		asNobody: true,
	}
	return faultCase{name: "files/" + x.name + "/" + from.name, holds: x.holds, run: d.run}
}
