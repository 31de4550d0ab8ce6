//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// source is one kind of input: its YAML, and a function that fills it with records.
type source struct {
	name string
	yaml string
	fill func(r *rig, lines []string)
}

func inFiles(folder string) func(r *rig, lines []string) {
	return func(r *rig, lines []string) {
		half := len(lines) / 2
		r.write(folder+"/a.log", strings.Join(lines[:half], "\n")+"\n")
		r.write(folder+"/b.log", strings.Join(lines[half:], "\n")+"\n")
	}
}

var (
	spoolSource = source{"spool", `spool_dir: { path: ./in, finished: keep, quiet_period: 10ms }`,
		inFiles("in")}
	tailSource  = source{"tail", `tail: { include: ["./in/*.log"] }`, inFiles("in")}
	tableSource = source{"table", `table: { sqlite: ./in.db, table: lines, poll: 50ms }`,
		func(r *rig, lines []string) {
			r.sqlite("in.db", "CREATE TABLE lines (id INTEGER PRIMARY KEY "+
				"AUTOINCREMENT, line TEXT)")
			r.sqliteInsert("in.db", lines)
		}}
	sources = []source{spoolSource, tailSource, tableSource}
)

// delivery is the scenario of most cases. It runs the program once under a fault. Then it removes
// the fault, and runs the program again until the source is empty. At the end it compares the
// records of the source with those that the receiver has.
type delivery struct {
	source     source // zero: spoolSource
	count      int    // records; 0: 2000
	size       int    // bytes of padding in each; 0: 20
	processors string // YAML list
	sink       string // YAML; {url} is replaced by the receiver's address
	options    string // more YAML of the route
	batch      string // 0: 100 records
	flags      []string
	stall      string // of the first run; "": 3s
	limits     string
	receiver   func(r *rig, when schedule) *receiver
	when       schedule
	prepare    func(r *rig)             // before the first run
	during     func(r *rig, p *process) // during the first run, concurrently
	heal       func(r *rig)             // removes the fault, besides healing the receiver
	exits      []int                    // of the run under the fault; nil: 0
	says       string                   // part of the summary's error or of the log of that run
	// returns the stored records, if the receiver is not an HTTP receiver
	stored       func(r *rig) tally
	dead         int  // records that must become dead letters; -1: any number
	lostAtSource bool // the fault destroys records before they can be read
	later        bool // some records appear only after the first run has begun
	// The program runs as a user other than root, so that file permissions apply to it.
	asNobody     bool
	daemon       bool     // the first run is without --once; during has to end it
	mute         bool     // the first run cannot print its summary
	stdout       *os.File // of the first run; nil: captured
	stderr       *os.File // likewise
	env          []string // of the program
	repeats      int      // copies allowed besides those of redelivered batches
	exactlyOnce  bool     // no copies at all
	healedExits  []int    // of the run without the fault; nil: 0
	keepsFailing bool     // the fault is permanent: there is no second run
	batchRecords int      // records per batch, to bound repetitions; 0: 100
	// anyRedelivery means that the number of repeated records is not checked. It is for runs
	// without a complete count of them in the summary, such as interrupted runs.
	anyRedelivery bool
}

func (d *delivery) defaults() {
	if d.source.name == "" {
		d.source = spoolSource
	}
	if d.count == 0 {
		d.count = 2000
	}
	if d.size == 0 {
		d.size = 20
	}
	if d.batch == "" {
		d.batch = "{ records: 100, linger: 20ms }"
	}
	if d.batchRecords == 0 {
		d.batchRecords = 100
	}
	if d.stall == "" {
		d.stall = "3s"
	}
	if d.exits == nil {
		d.exits = []int{0}
	}
	if d.healedExits == nil {
		d.healedExits = []int{0}
	}
}

// config writes penstock.yaml. The times for retry, abandon and drain in it are short, so that a
// fault does not take long.
func (d *delivery) config(r *rig, url string) {
	retry := "    retry: { base: 5ms, max: 100ms }\n    flow: { abandon: 1s }\n    drain: 3s\n"
	for _, key := range []string{"retry", "flow", "drain"} {
		if strings.Contains(d.options, key+":") {
			lines := slices.DeleteFunc(strings.SplitAfter(retry, "\n"), func(l string) bool {
				return strings.Contains(l,
					key+":")
			})
			retry = strings.Join(lines, "")
		}
	}
	text := "state: ./state\npipelines:\n  p:\n    source: { " + d.source.yaml + " }\n"
	if d.processors != "" {
		text += "    processors: [" + d.processors + "]\n"
	}
	text += "    sink: { " + strings.ReplaceAll(d.sink, "{url}", url) + " }\n    batch: " +
		d.batch + "\n" + retry
	if d.options != "" {
		text += "    " + d.options + "\n"
	}
	r.write("penstock.yaml", text)
}

func (d delivery) run(r *rig) {
	d.defaults()
	d.source.fill(r, records(0, d.count, d.size))
	var server *receiver
	url := ""
	if d.receiver != nil {
		server = d.receiver(r, d.when)
		url = server.url()
	}
	d.config(r, url)
	if d.prepare != nil {
		d.prepare(r)
	}
	args := []string{"run", "--once", "--json", "--stall", d.stall}
	if d.daemon {
		args = []string{"run", "--json"}
	}
	p := r.start(launch{args: slices.Concat(args, d.flags, []string{"penstock.yaml"}),
		limits:   d.limits,
		asNobody: d.asNobody,
		env:      d.env, stdout: d.stdout, stderr: d.stderr})
	if d.during != nil {
		d.during(r, p)
	}
	code := p.expect(d.exits...)
	var s summary
	if code >= 0 && code != 2 && !d.mute {
		s = p.summary(code)
	}
	if d.says != "" && !strings.Contains(s.Error+p.stderr.String(), d.says) {
		r.errorf("the log does not contain %q: %s\n%s", d.says, s.Error,
			tail(p.stderr.String(), 2000))
	}
	d.judge(r, server, code, []summary{s}, false)
	if d.keepsFailing {
		return
	}
	if server != nil {
		server.heal()
	}
	if d.heal != nil {
		d.heal(r)
	}
	if code != 0 || d.heal != nil {
		again := r.start(launch{args: []string{"run", "--once", "--json", "--stall", "20s",
			"penstock.yaml"},
			asNobody: d.asNobody, env: d.env})
		code = again.expect(d.healedExits...)
		d.judge(r, server, code, []summary{s, again.summary(code)}, true)
	}
}

// judge compares the receiver with the source after a run. After the last run, no record may be
// missing. After an earlier run with exit code 0, no record may be missing either, if all records
// were in the source from the start.
func (d *delivery) judge(r *rig, server *receiver, code int, runs []summary, last bool) {
	got := d.received(r, server)
	dead := r.deadLetters()
	settled := last || code == 0 && !d.later && !d.daemon // nothing may be missing
	if n := got.invented(d.count); n > 0 &&
		settled { // a failed run may leave an incomplete record, which the next run removes
		r.errorf("%d records were invented or damaged, such as %.200q", n, got.invalid)
	}
	missing := slices.DeleteFunc(got.lost(d.count), func(n int) bool { return dead[n] })
	if settled && len(missing) > 0 && !d.lostAtSource {
		r.errorf("lost %d records with exit code %d: %.100v", len(missing), code,
			fmt.Sprint(missing))
	}
	if settled && d.dead >= 0 && len(dead) != d.dead {
		r.errorf("%d records are dead letters, want %d", len(dead), d.dead)
	}
	var delivered, redelivered, attempts, unfinished int64
	for _, s := range runs {
		for _, route := range s.Pipelines {
			delivered += route.Delivered
			redelivered += route.Redelivered
			attempts += route.Attempts
			unfinished += route.Waiting +
				route.InFlight // a receiver may have stored them without acknowledging them
		}
	}
	has := len(got.copies)
	if d.lostAtSource || d.anyRedelivery {
		// A truncated file is read again. Without its state, the program reads everything again.
		has += got.repeated()
	}
	if claimed := int(delivered); claimed > has {
		r.errorf("%d records count as delivered, and the receiver has %d", claimed, has)
	}
	allowed := d.repeats + int(redelivered)*d.batchRecords + int(unfinished)
	if d.exactlyOnce {
		allowed = 0
	}
	if n := got.repeated(); n > allowed && !d.anyRedelivery {
		r.errorf("%d records were received again, at most %d are allowed (%d batches were "+
			"redelivered)", n, allowed,
			redelivered)
	}
	if server == nil || d.anyRedelivery || d.mute {
		return
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.requests > int(attempts) {
		r.errorf("the receiver saw %d requests, and %d attempts were counted", server.requests,
			attempts)
	}
}

func (d *delivery) received(r *rig, server *receiver) tally {
	if d.stored != nil {
		return d.stored(r)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	var got tally
	for _, body := range server.bodies {
		got.add(body)
	}
	return got
}

// storedIn counts the records in the files that match a pattern.
func storedIn(pattern string) func(r *rig) tally {
	return func(r *rig) (got tally) {
		files, err := filepath.Glob(r.path(pattern))
		r.check(err)
		for _, f := range files {
			if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() {
				got.add(r.read(strings.TrimPrefix(f, r.dir+"/")))
			}
		}
		return got
	}
}

// deadLetters asks the program for the dead-lettered records. If the program cannot read the state,
// deadLetters returns none, and the records count as lost.
func (r *rig) deadLetters() map[int]bool {
	bin, err := program()
	r.check(err)
	cmd := exec.Command(bin, "dead", "show", "--json", "penstock.yaml")
	cmd.Dir = r.dir
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	var got tally
	for line := range strings.Lines(string(out)) {
		var letter struct{ Record string }
		if err := json.Unmarshal([]byte(line), &letter); err != nil {
			r.fatalf("penstock dead show printed %q: %v", line, err)
		}
		got.add(letter.Record)
	}
	dead := map[int]bool{}
	for n := range got.copies {
		dead[n] = true
	}
	return dead
}

// whileRunning calls f again and again until the program has ended.
func whileRunning(p *process, every time.Duration, f func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.ended:
			return
		case <-tick.C:
			f()
		}
	}
}
