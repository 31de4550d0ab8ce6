package endtoend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// soakReplay bounds the bytes that a kill may repeat at the HTTP receiver of each pipeline.
const soakReplay = 256 << 10

// soakProcess is the environment variable with the number of the process. The process puts this
// number into the path of each request, where servers find it.
const soakProcess = "SOAK_PROCESS"

// soak is a program with its writers and receivers.
type soak struct {
	t       *testing.T
	seed    uint64
	length  time.Duration
	dir     string
	config  string
	log     *os.File
	cmd     *exec.Cmd // nil while it is down
	ended   chan error
	process int32          // the number of the last process
	drained map[int32]bool // processes that completed their in-flight batches
	servers [len(soakPosts)]*soakServer
	tables  [2]*soakTable // of the tail, of the spool directory
	writers []*soakWriter
	counts  soakCounts
	kills   int
	samples []soakSample // of the current process
	steady  [soakTailers + soakSpoolers]atomic.Int64
}

// soakPosts are the HTTP routes. Two pipelines read the log files: one with three routes, of which
// one delivers to a table, and one with a single route. A third pipeline reads the spool directory
// and has two routes.
var soakPosts = [...]struct {
	pipeline, route string
	of              int  // index of the table with the same lines
	late            bool // its receiver is down for twice as long
}{
	{"logs", "post", 0, false}, {"spool", "post", 1, false}, {"logs", "late", 0, true},
	{"alone", "post", 0, false},
}

// soakSample is the progress of each writer at one time: the number n such that the current process
// had delivered the writer's first n lines to all receivers.
type soakSample struct {
	at   time.Time
	upTo [soakTailers + soakSpoolers]int
}

// TestSoak runs the program while it follows log files and empties a spool directory. Meanwhile
// writers write, rotate in four ways, truncate, compress and delete files at random, and the
// program is killed at random. Pipelines of one, two and three routes deliver to SQLite and over
// HTTP. SQLite must have every line once. Over HTTP no line may be missing, and a kill may repeat
// at most checkpoint.replay. The HTTP receivers are down for longer than several rotations.
// PENSTOCK_SOAK is the duration in seconds. PENSTOCK_SEED repeats a schedule.
func TestSoak(t *testing.T) {
	t.Parallel()
	seconds, seed := 4, rand.Uint64()
	for name, set := range map[string]func(n uint64){
		"PENSTOCK_SOAK": func(n uint64) { seconds = int(n) },
		"PENSTOCK_SEED": func(n uint64) { seed = n },
	} {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil || n == 0 {
				t.Fatalf("%s=%q is no number above 0", name, text)
			}
			set(n)
		}
	}
	t.Logf("seed %d: make soak SECONDS=%d SEED=%d replays this schedule", seed, seconds, seed)
	s := newSoak(t, seed, time.Duration(seconds)*time.Second)
	schedule := soakSchedule(seed, s.length)
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	begun := time.Now()
	running := int32(len(s.writers))
	for _, w := range s.writers {
		steps := of(schedule, w.index)
		go func() {
			defer atomic.AddInt32(&running, -1)
			if err := w.run(ctx, begun, steps); err != nil {
				stop(err)
			}
		}()
	}
	atomic.AddInt32(&running, 1)
	go func() {
		defer atomic.AddInt32(&running, -1)
		s.interrupt(ctx, begun, of(schedule, receiversActor))
	}()
	defer func() { // no writer may outlive the folder
		stop(nil)
		for atomic.LoadInt32(&running) > 0 {
			soakWait(context.Background(), 10*time.Millisecond)
		}
	}()
	s.start()
	for _, step := range of(schedule, programActor) {
		s.follow(ctx, time.Until(begun.Add(step.At)))
		if s.kill(step.Do == actDrain); ctx.Err() != nil {
			break
		}
		s.follow(ctx, time.Duration(step.N)*time.Millisecond)
		s.start()
	}
	s.follow(ctx, time.Until(begun.Add(s.length)))
	for atomic.LoadInt32(&running) > 0 && ctx.Err() == nil {
		s.follow(ctx, 10*time.Millisecond)
	}
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
	s.finish(ctx)
	s.check()
}

// interrupt makes the HTTP receivers answer 503 during the intervals in steps.
func (s *soak) interrupt(ctx context.Context, begun time.Time, steps []soakStep) {
	for _, step := range steps {
		if !soakWait(ctx, time.Until(begun.Add(step.At))) {
			return
		}
		for _, server := range s.servers {
			server.down.Store(true)
		}
		soakWait(ctx, time.Duration(step.N)*time.Millisecond)
		for i, server := range s.servers {
			server.down.Store(soakPosts[i].late)
		}
		soakWait(ctx, time.Duration(step.N)*time.Millisecond)
		for _, server := range s.servers {
			server.down.Store(false)
		}
	}
}

func newSoak(t *testing.T, seed uint64, length time.Duration) *soak {
	dir, err := os.MkdirTemp("", "penstock-soak-")
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{t: t, seed: seed, length: length, dir: dir, drained: make(map[int32]bool)}
	t.Cleanup(s.close)
	for _, name := range []string{"logs", "spool", "archive"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s.log, err = os.Create(filepath.Join(dir, "penstock.log")); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"logs.db", "spool.db"} {
		s.tables[i] = &soakTable{db: connectortest.OpenSQLite(t, filepath.Join(dir, name))}
		connectortest.Execute(t, s.tables[i].db, "PRAGMA journal_mode = WAL")
	}
	routes := make(map[string]string)
	for i, post := range soakPosts {
		s.servers[i] = newSoakServer()
		server := httptest.NewServer(s.servers[i])
		t.Cleanup(server.Close)
		routes[post.pipeline] += soakPost(post.route, server.URL)
	}
	s.config = write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  logs:
    source: { %[1]s }
    routes:%[3]s%[4]s
  alone:
    source: { %[1]s }
    routes:%[5]s
  spool:
    source: { %[2]s }
    routes:%[6]s%[7]s
`, `tail: { include: ["./logs/*.log*"], exclude: [".*"], gone_wait: 5s, copy_wait: 3s, poll_max: 250ms }`,
		`spool_dir: { path: ./spool, include: ["*.log"], quiet_period: 300ms, poll_max: 250ms }`,
		soakInsert("logs"), routes["logs"], routes["alone"], soakInsert("spool"), routes["spool"]))
	for who := range soakTailers + soakSpoolers {
		w := &soakWriter{index: who, dir: filepath.Join(dir, "logs"),
			archive: filepath.Join(dir, "archive"), count: &s.counts}
		switch {
		case who >= soakTailers:
			w.dir = filepath.Join(dir, "spool")
		case who >= rotations: // one of the two writers of each method compresses within the globs
			w.archive = ""
		}
		w.delivered = s.delivered
		w.known = func(who, upTo int) bool { return s.steady[who].Load() >= int64(upTo) }
		s.writers = append(s.writers, w)
	}
	return s
}

// soakInsert returns the config of a route to a table.
func soakInsert(name string) string {
	return fmt.Sprintf(`
      table:
        processors: [{ set: { id: meta.id } }]
        sink: { sqlite: { path: ./%s.db, table: lines } }
        batch: { bytes: 64KiB }
        checkpoint: { sync: 50ms }`, name)
}

// soakPost returns the config of a route to two workers of a server.
func soakPost(route, url string) string {
	return fmt.Sprintf(`
      %[1]s:
        sink: { http: { endpoints: ["%[2]s/a/${%[3]s:-1000000}", "%[2]s/b/${%[3]s:-1000000}"], body: raw } }
        batch: { bytes: 16KiB }
        flow: { timeout: 50s }
        checkpoint: { replay: %[4]dB, sync: 50ms }`, route, url, soakProcess, soakReplay)
}

// of returns the index in s.tables of the table that gets the lines of the given writer. Index 0 is
// the table for the writers of log files, and index 1 that for the writers of the spool directory.
func (s *soak) of(who int) int {
	if who >= soakTailers {
		return 1
	}
	return 0
}

// receivers returns the servers that get a writer's lines.
func (s *soak) receivers(who int) (list []*soakServer) {
	for i, server := range s.servers {
		if soakPosts[i].of == s.of(who) {
			list = append(list, server)
		}
	}
	return list
}

// delivered reports whether all receivers have all lines of a writer before upTo.
func (s *soak) delivered(who, upTo int) bool {
	missing := func(server *soakServer) bool { return !server.all(who, upTo) }
	return s.tables[s.of(who)].all(who, upTo) && !slices.ContainsFunc(s.receivers(who), missing)
}

// close ends the soak, and keeps its files if there were problems.
func (s *soak) close() {
	s.kill(false)
	if s.log != nil {
		_ = s.log.Close()
	}
	if s.t.Failed() {
		s.t.Logf("seed %d, %d seconds: files, tables and the program's log are kept in %s", s.seed,
			s.length/time.Second, s.dir)
		return
	}
	_ = os.RemoveAll(s.dir)
}

func (s *soak) start() {
	s.t.Helper()
	bin, err := program()
	if err != nil {
		s.t.Fatal(err)
	}
	s.process++
	s.cmd = exec.Command(bin, "run", s.config)
	s.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", soakProcess, s.process))
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended, cmd := make(chan error, 1), s.cmd
	go func() { ended <- cmd.Wait() }()
	s.ended = ended
}

// outage reports whether the HTTP receivers answer 503 now.
func (s *soak) outage() bool {
	return slices.ContainsFunc(s.servers[:],
		func(server *soakServer) bool { return server.down.Load() })
}

// kill ends the program with SIGKILL, or drains it.
func (s *soak) kill(drain bool) {
	if s.cmd == nil {
		return
	}
	signal := syscall.SIGKILL
	if drain {
		signal = syscall.SIGTERM
	}
	outage := s.outage()
	_ = s.cmd.Process.Signal(signal)
	err := <-s.ended
	// During an outage a drain cannot deliver its data. It ends early with exit code 1.
	outage = outage || s.outage()
	// early means that the signal arrived before the process had installed its handler.
	early := err != nil && err.Error() == "signal: terminated"
	if drain && err != nil && !outage && !early {
		s.t.Errorf("a drained run ended with %v", err)
	}
	s.cmd, s.samples = nil, nil
	s.kills++
	if drain && err == nil {
		s.drained[s.process] = true
	}
}

// savedAfter is the time from the delivery of a line until the line is certainly in the checkpoint,
// if the process is still running.
const savedAfter = time.Second

// sample records the current deliveries. Samples older than savedAfter count as saved and are
// removed. Deliveries of earlier processes do not count: such a process may have been killed before
// it saved them, and the current process may repeat them much later.
func (s *soak) sample() {
	if s.cmd == nil {
		return
	}
	now := soakSample{at: time.Now()}
	for who := range now.upTo {
		now.upTo[who] = s.tables[s.of(who)].newest(who)
		for _, server := range s.receivers(who) {
			now.upTo[who] = min(now.upTo[who], server.newest(s.process, who))
		}
	}
	s.samples = append(s.samples, now)
	for len(s.samples) > 0 && now.at.Sub(s.samples[0].at) > savedAfter {
		for who, n := range s.samples[0].upTo {
			s.steady[who].Store(max(s.steady[who].Load(), int64(n)))
		}
		s.samples = s.samples[1:]
	}
}

// follow waits for d and reads new rows from the tables.
func (s *soak) follow(ctx context.Context, d time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(d); ; {
		for _, table := range s.tables {
			if err := table.look(); err != nil {
				s.t.Fatal(err)
			}
		}
		s.sample()
		select {
		case err := <-s.ended:
			s.cmd = nil
			s.t.Fatalf("the program ended by itself: %v", err)
		default:
		}
		left := time.Until(end)
		if left <= 0 || !soakWait(ctx, min(left, soakLook)) {
			return
		}
	}
}

// stuck is the maximum time without a new line at the receivers while lines are missing there.
const stuck = 30 * time.Second

// quietLooks is the number of consecutive checks without a new delivery after which the program
// counts as done. The checks are soakLook apart. So they take at least 5 s, which is longer than
// copy_wait plus a response. By then all deliveries that a kill left unsaved have been repeated. If
// the test drained the program earlier, the program would repeat these deliveries at the next
// start.
const (
	quietLooks = 50
	soakLook   = 100 * time.Millisecond
)

// finish waits until all receivers have everything, and drains the program. Then it runs the
// program once more. This run must read no record.
func (s *soak) finish(ctx context.Context) {
	looks := 0 // since the last delivery
	for last, most := time.Now(), int64(-1); ; looks++ {
		all := true
		for _, w := range s.writers {
			all = all && s.delivered(w.index, int(w.next.Load()))
		}
		have := int64(0)
		for _, server := range s.servers {
			have += server.count()
		}
		for _, table := range s.tables {
			have += table.count()
		}
		if have > most {
			last, most, looks = time.Now(), have, 0
		}
		if all && looks > quietLooks {
			break
		}
		if time.Since(last) > stuck {
			s.t.Error("lines are missing, and nothing comes any more")
			break
		}
		s.follow(ctx, soakLook)
	}
	s.kill(true)
	s.follow(ctx, 0)
	if again, err := tryOnce(s.t, s.config); err != nil {
		s.t.Error(err)
	} else {
		for _, p := range again.Pipelines {
			if p.ReadRecords != 0 {
				s.t.Errorf("%s/%s: %d records were read again after the end", p.Pipeline, p.Route,
					p.ReadRecords)
			}
		}
	}
	s.follow(ctx, 0)
}

// check compares the receivers' lines with those that the writers wrote.
func (s *soak) check() {
	for _, w := range s.writers {
		n := int(w.next.Load())
		if err := s.tables[s.of(w.index)].missing(w.index, n); err != nil {
			s.t.Errorf("the table: writer %d: %v", w.index, err)
		}
		for i, post := range soakPosts {
			if post.of != s.of(w.index) {
				continue
			}
			if err := s.servers[i].missing(w.index, n); err != nil {
				s.t.Errorf("%s/%s: writer %d: %v", post.pipeline, post.route, w.index, err)
			}
		}
	}
	lines := int64(0)
	for i, name := range []string{"logs", "spool"} {
		for _, p := range s.tables[i].problems {
			s.t.Errorf("%s: %s", name, p)
		}
		lines += s.tables[i].records
	}
	for i, post := range soakPosts {
		name := post.pipeline + "/" + post.route
		for _, p := range s.servers[i].problems {
			s.t.Errorf("%s: %s", name, p)
		}
		s.checkRepeats(name, s.servers[i], s.tables[post.of].records)
	}
	c := &s.counts
	s.t.Logf("%d lines, %d bytes, %d kills; %d rotations, %d truncations, %d files compressed, "+
		"%d deleted; "+
		"%d left out, as not delivered yet",
		lines, c.bytes.Load(), s.kills, c.rotated.Load(), c.truncated.Load(), c.compressed.Load(),
		c.deleted.Load(), c.leftOut.Load())
	if lines == 0 || s.kills == 0 {
		s.t.Error(errors.New("nothing was tried"))
	}
}

// checkRepeats compares the repeated bytes with the bound: checkpoint.replay for a process that was
// killed, and nothing for a process that was drained.
func (s *soak) checkRepeats(name string, server *soakServer, lines int64) {
	repeats, twice := server.repeats()
	if twice > 0 {
		s.t.Errorf("%s: %d bytes came twice from one process", name, twice)
	}
	all, most := int64(0), int64(0)
	for _, r := range repeats {
		all, most = all+r.bytes, max(most, r.bytes)
		if r.bytes > soakReplay {
			s.t.Errorf("%s: a kill repeated %d bytes, more than checkpoint.replay (%d): %v", name,
				r.bytes, soakReplay, r)
		}
		if s.drained[r.process] {
			s.t.Errorf("%s: what a drained process had delivered came again, %d bytes: %v", name,
				r.bytes, r)
		}
	}
	s.t.Logf("%s: %d lines; %d bytes repeated, %d by one kill at most, where %d are allowed", name,
		lines, all, most, int64(soakReplay))
}
