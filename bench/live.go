package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
)

// live is a load of files that grow while penstock reads them.
type live struct {
	files    int
	rate     int64 // bytes per second
	seconds  float64
	behaves  receiver.Behaviour
	pipeline string // further lines of YAML of the pipeline
}

// feedMain is the main function of the process that writes the files.
func feedMain(args []string) error {
	var f load.Feed
	flags := flag.NewFlagSet("feed", flag.ContinueOnError)
	program := flags.String("program", "", "")
	ready := flags.String("ready", "", "file that is waited for before the first line is written")
	flags.StringVar(&f.Dir, "dir", "", "")
	flags.IntVar(&f.Files, "files", 1, "")
	flags.Int64Var(&f.Rate, "rate", 0, "")
	flags.Int64Var(&f.Records, "records", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b, err := load.NewBlock(*program, load.Combined, true)
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(*ready); err == nil {
			return f.Run(b)
		}
		time.Sleep(time.Millisecond)
	}
}

const fromTail = `{ tail: { include: ["./spool/*.log"], start: beginning } }`

// growing returns the source for growing files. This is tail, or spool_dir if this version of
// penstock has no tail.
func (e *env) growing() (name, yaml string) {
	out, err := exec.Command(e.penstock, "schema").Output()
	if err == nil && strings.Contains(string(out), `"tail"`) {
		return "tail", fromTail
	}
	return "spool_dir", "{ spool_dir: { path: ./spool, finished: keep } }"
}

// run starts penstock, and then a process that writes the lines (the writer). When all records have
// arrived, run stops penstock. The measured time begins when the writer begins, and ends when the
// last record has arrived for the first time.
func (l live) run(e *env) (m measure, err error) { return l.with(e, l.drive) }

// with creates the job and its receiver and calls drive with them.
func (l live) with(e *env, drive func(*env, *job, *receiver.Receiver, load.Input) (measure,
	error)) (m measure, err error) {
	block, err := e.timed()
	if err != nil {
		return m, err
	}
	perRecord := float64(block.Bytes()) / float64(block.Lines())
	in := load.Input{Bytes: int64(float64(l.rate) * l.seconds),
		Records: int64(float64(l.rate) * l.seconds / perRecord)}
	l.behaves.Records = in.Records
	rec, err := receiver.Start(l.behaves)
	if err != nil {
		return m, err
	}
	defer rec.Stop()
	name, source := e.growing()
	j, err := e.job(load.Input{}, l.config(source, rec.Endpoints(4)))
	if err != nil {
		return m, err
	}
	e.note("the source is " + name)
	return drive(e, j, rec, in)
}

// config returns a config that posts the records of a source to urls.
func (l live) config(source string, urls []string) string {
	return fmt.Sprintf("state: ./state\npipelines:\n  bench:\n    source: %s\n    sink: { http: "+
		"{ endpoints: [%s], body: raw } }\n%s",
		source, strings.Join(urls, ", "), l.pipeline)
}

// feed starts the writer. The writer begins when the file go exists.
func (l live) feed(e *env, j *job, records int64) (*proc.Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return proc.Start(j.dir, exe, "feed", "-program", e.penstock, "-dir", j.path("spool"), "-ready",
		j.path("go"),
		"-files", fmt.Sprint(l.files), "-rate", fmt.Sprint(l.rate), "-records", fmt.Sprint(records))
}

// start starts the process of the writer, which waits for the file go, and then penstock.
func (l live) start(e *env, j *job, records int64) (feeder, p *proc.Process, err error) {
	if feeder, err = l.feed(e, j, records); err != nil {
		return nil, nil, err
	}
	if p, err = j.start(false); err != nil {
		feeder.Kill()
	}
	return feeder, p, err
}

func (l live) drive(e *env, j *job, rec *receiver.Receiver, in load.Input) (m measure, err error) {
	feeder, p, err := l.start(e, j, in.Records)
	if err != nil {
		return m, err
	}
	time.Sleep(settleIn)
	begun := time.Now()
	if err := os.WriteFile(j.path("go"), nil, 0o600); err != nil {
		feeder.Kill()
		p.Kill()
		return m, err
	}
	r, written, err := arriveAll(feeder, p, rec, in)
	if err != nil {
		return m, err
	}
	s, err := rec.Stats() // includes records that arrived while penstock stopped
	if err != nil {
		return m, err
	}
	said, err := parseSummary(r.Out)
	if err != nil {
		return m, err
	}
	r.Seconds = s.LastUnix - float64(begun.UnixNano())/1e9
	m = of(r, in)
	m.see(s)
	m.resent(said)
	m.figures["drain_s"] = max(0, s.LastUnix-float64(written.UnixNano())/1e9)
	m.figures["cores"] = r.CPU / r.Seconds
	return m, nil
}

// arriveAll waits until the writer has ended and all records have arrived, and then stops penstock.
// It returns the measurements of penstock, and the time at which the writer ended.
func arriveAll(feeder, p *proc.Process, rec *receiver.Receiver,
	in load.Input) (r proc.Run, written time.Time, err error) {
	_, err = feeder.Wait()
	written = time.Now()
	if err == nil {
		_, err = rec.Await(in.Records, patience, p.Ended())
	}
	r, stopped := p.Stop(patience)
	return r, written, errors.Join(err, stopped)
}

// settleIn is the time for a program to start before files are written.
const settleIn = 500 * time.Millisecond

// fed returns the fastest possible measurement, with which penstock is compared: all data of the
// load, received in exactly the duration of the load.
func (l live) fed(in load.Input) measure {
	return of(proc.Run{Seconds: l.seconds},
		load.Input{Bytes: int64(float64(l.rate) * l.seconds), Records: in.Records})
}
