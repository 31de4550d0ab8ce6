package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
)

const (
	kills         = 5
	patience      = 30 * time.Second // a run without progress for this time is ended
	progressEvery = 5 * time.Millisecond
)

// crash configures the kills of a job. After the first progress of a run, a random time from
// after[0] to after[1] passes before the kill. progress returns a number that grows while the job
// delivers records.
type crash struct {
	progress func() int64
	after    [2]time.Duration
	seed     uint64
	live     bool // the input is written during the run, so the job does not end by itself
}

// between returns the range from low to high, which are in milliseconds.
func between(low, high time.Duration) [2]time.Duration {
	return [2]time.Duration{low * time.Millisecond, high * time.Millisecond}
}

// killed runs a job and kills it several times. Then it lets the job finish. It returns the totals
// of all runs.
func (c crash) killed(j *job, in load.Input) (measure, error) {
	total := of(measure{}.Run, in)
	if err := c.kill(j, &total); err != nil {
		return total, err
	}
	r, _, err := j.once()
	total.add(r)
	return total, err
}

// doublings is the maximum number of times that longEnough doubles the input.
const doublings = 2

// longEnough returns a function that calls run, which runs a job with kills. If the job ends before
// the last kill, as it may on a fast machine, run is called again with twice the input. It is not
// called again after an error, a lost record, or more repeated records than most["repeated"].
func longEnough(most map[string]float64, run func(*env, load.Input) (measure, error)) func(*env,
	load.Input) (measure, error) {
	repeats, bounded := most["repeated"]
	return func(e *env, in load.Input) (measure, error) {
		for again := 0; ; again++ {
			m, err := run(e, in)
			wrong := err != nil || m.lost > 0 || bounded && float64(m.repeated) > repeats
			if wrong || m.figures["kills"] == kills || again == doublings {
				return m, err
			}
			if in, err = e.input(in.Kind, 2*in.Bytes); err != nil {
				return m, err
			}
		}
	}
}

// kill starts and kills a job several times. It ends earlier if the job has finished. It adds the
// measurements to total.
func (c crash) kill(j *job, total *measure) error {
	rnd := rand.New(rand.NewPCG(c.seed, 0))
	for range kills {
		finished, err := c.killOnce(j, rnd, total)
		if err != nil || finished {
			return err
		}
		total.figures["kills"]++
	}
	return nil
}

// add adds the resources that another process has used to m.
func (m *measure) add(r proc.Run) {
	m.Seconds += r.Seconds
	m.CPU += r.CPU
	m.RSSMiB = max(m.RSSMiB, r.RSSMiB)
}

// killOnce starts the job and kills it. finished reports whether the job had ended before that.
func (c crash) killOnce(j *job, rnd *rand.Rand, total *measure) (finished bool, err error) {
	before := c.progress()
	p, err := j.start(!c.live)
	if err != nil {
		return false, err
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	begun := time.Now()
	for c.progress() <= before && !finished {
		if time.Since(begun) > patience {
			p.Kill()
			return false, fmt.Errorf("nothing arrived within %v of a start", patience)
		}
		select {
		case <-p.Ended():
			finished = true
		case <-tick.C:
		}
	}
	select {
	case <-p.Ended():
		finished = true
	case <-time.After(c.after[0] + time.Duration(rnd.Int64N(int64(c.after[1]-c.after[0])))):
		p.Kill()
	}
	r, err := p.Wait()
	total.add(r)
	if !finished {
		err = nil
	}
	return finished, err
}

// replay is the value of checkpoint.replay that withReplay sets. It limits the records that are
// repeated after a kill.
const (
	replay      = "1MiB"
	replayBytes = 1 << 20
)

func withReplay(records int) string {
	return fmt.Sprintf("    batch: { records: %d }\n    checkpoint: { replay: %s }\n",
		records, replay)
}

// killedIntoHTTP kills penstock while it posts batches of 500 records. The receiver accepts about
// 24 MB/s.
func killedIntoHTTP(e *env, in load.Input) (measure, error) {
	rec, err := receiver.Start(receiver.Behaviour{Records: in.Records, Delay: 20 * time.Millisecond,
		Slots: 4})
	if err != nil {
		return measure{}, err
	}
	defer rec.Stop()
	j, err := e.job(in, toHTTP(rec.Endpoints(4), withReplay(500)))
	if err != nil {
		return measure{}, err
	}
	c := crash{seed: 6, after: between(300, 800), progress: arrived(rec)}
	m, err := c.killed(j, in)
	if err != nil {
		return m, err
	}
	if err := m.ask(rec); err != nil {
		return m, err
	}
	// The maximum number of records of this input that kills may repeat.
	bound := float64(replayBytes) / (float64(in.Bytes) / float64(in.Records)) * m.figures["kills"]
	m.figures["replay_bound"] = bound
	if bound > 0 { // penstock was killed at least once
		m.figures["repeated_of_bound"] = float64(m.repeated) / bound
	}
	return m, nil
}

// arrived returns a function that returns the number of records at a receiver, or -1 after an
// error.
func arrived(rec *receiver.Receiver) func() int64 {
	return func() int64 {
		s, err := rec.Stats()
		if err != nil {
			return -1
		}
		return s.Unique
	}
}

// writtenMeanwhile is the load of the workload w6_live. It lasts about as long as the kills. A file
// grows by 8 MB/s, and the receiver responds after 100 ms.
var writtenMeanwhile = live{files: 1, rate: 8e6, seconds: 14,
	behaves: receiver.Behaviour{Delay: 100 * time.Millisecond}}

// killedLive kills penstock while it follows a growing file. penstock has its default options.
func killedLive(e *env, _ load.Input) (measure, error) {
	return writtenMeanwhile.with(e, writtenMeanwhile.kill)
}

func (l live) kill(e *env, j *job, rec *receiver.Receiver, in load.Input) (measure, error) {
	m := of(measure{}.Run, in)
	feeder, err := l.feed(e, j, in.Records)
	if err != nil {
		return m, err
	}
	if err := os.WriteFile(j.path("go"), nil, 0o600); err != nil {
		feeder.Kill()
		return m, err
	}
	c := crash{seed: 10, after: between(1500, 2500), live: true, progress: arrived(rec)}
	err = c.kill(j, &m)
	var p *proc.Process
	if err == nil {
		p, err = j.start(false)
	}
	if err != nil {
		feeder.Kill()
		return m, err
	}
	r, _, err := arriveAll(feeder, p, rec, in)
	m.add(r)
	if err != nil {
		return m, err
	}
	return m, m.ask(rec)
}

// killedIntoFile kills penstock while it writes a file.
func killedIntoFile(e *env, in load.Input) (measure, error) {
	j, err := e.job(in, toFile("ack")+withReplay(500))
	if err != nil {
		return measure{}, err
	}
	out := j.path("out.log")
	c := crash{seed: 7, after: between(20, 120), progress: func() int64 { return sizes(out) }}
	m, err := c.killed(j, in)
	if err != nil {
		return m, err
	}
	defer os.Remove(out)
	return m, m.compare(in, out)
}

// killedIntoSQLite kills penstock while it writes a table.
func killedIntoSQLite(e *env, in load.Input) (measure, error) {
	j, err := e.job(in, toSQLite+withReplay(500))
	if err != nil {
		return measure{}, err
	}
	db := j.path("out.db")
	c := crash{seed: 8, after: between(50, 200), progress: func() int64 {
		return sizes(db, db+"-wal")
	}}
	m, err := c.killed(j, in)
	if err != nil {
		return m, err
	}
	return m, m.countRows(db)
}

// killedIntoPostgres kills penstock while it writes a table with four connections.
func killedIntoPostgres(e *env, in load.Input) (measure, error) {
	j, s, err := postgresJob(e, in)
	if err != nil {
		return measure{}, err
	}
	started := int64(0) // each call counts as progress: nothing better is cheap to measure
	c := crash{seed: 9, after: between(150, 400), progress: func() int64 {
		started++
		return started
	}}
	m, err := c.killed(j, in)
	if err != nil {
		return m, err
	}
	return m, s.count(&m)
}

// sizes returns the total size of files.
func sizes(paths ...string) (n int64) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			n += info.Size()
		}
	}
	return n
}
