package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
)

// measure is the result of one run of a program.
type measure struct {
	proc.Run
	bytes, records int64 // of the input
	lost, repeated int64
	figures        map[string]float64
}

func (m measure) mbPerS() float64   { return float64(m.bytes) / 1e6 / m.Seconds }
func (m measure) cpuPerGB() float64 { return m.CPU / (float64(m.bytes) / 1e9) }

// of returns the measurements of a run that has processed the input in.
func of(r proc.Run, in load.Input) measure {
	return measure{Run: r, bytes: in.Bytes, records: in.Records, figures: map[string]float64{}}
}

// fromSpool is the first part of a config that reads the input from a spool directory.
const fromSpool = `state: ./state
pipelines:
  bench:
    source: { spool_dir: { path: ./spool, finished: keep } }
`

// job is a folder that contains a config and its input.
type job struct {
	env    *env
	dir    string
	config string
}

// job creates a new folder with the input in a spool directory. Relative paths in the config are
// relative to the folder.
func (e *env) job(in load.Input, config string) (*job, error) {
	dir := filepath.Join(e.dir, "run")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "spool"), 0o755); err != nil {
		return nil, err
	}
	if in.Path != "" {
		if err := os.Link(in.Path, filepath.Join(dir, "spool", "input.log")); err != nil {
			return nil, err
		}
	}
	j := &job{env: e, dir: dir, config: filepath.Join(dir, "penstock.yaml")}
	return j, os.WriteFile(j.config, []byte(config), 0o600)
}

func (j *job) path(name string) string { return filepath.Join(j.dir, name) }

// start starts penstock. If once is set, penstock ends at the end of the input.
func (j *job) start(once bool) (*proc.Process, error) {
	args := []string{"run", "--json", j.config}
	if once {
		args = []string{"run", "--once", "--json", j.config}
	}
	return proc.Start(j.dir, j.env.penstock, args...)
}

// once runs penstock until the end of the input.
func (j *job) once() (proc.Run, summary, error) {
	p, err := j.start(true)
	if err != nil {
		return proc.Run{}, summary{}, err
	}
	giveUp := time.AfterFunc(runPatience, p.Kill)
	r, err := p.Wait()
	if !giveUp.Stop() {
		return r, summary{}, fmt.Errorf("penstock was not done after %v", runPatience)
	}
	if err != nil {
		return r, summary{}, err
	}
	s, err := parseSummary(r.Out)
	return r, s, err
}

// runPatience is the maximum duration of a run.
const runPatience = 4 * time.Minute

// summary is the result of the only pipeline in the output of `penstock run --json`.
type summary struct {
	ReadRecords int64 `json:"read_records"`
	Delivered   int64
	Dead        int64
	Dropped     int64
	Redelivered int64 // in batches
}

func parseSummary(out []byte) (summary, error) {
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var last struct {
		OK        bool
		Error     string
		Pipelines []summary
	}
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		return summary{}, fmt.Errorf("penstock's last line is %q: %w", lines[len(lines)-1], err)
	}
	if !last.OK || len(last.Pipelines) != 1 {
		return summary{}, errors.New("penstock did not finish: " + last.Error)
	}
	return last.Pipelines[0], nil
}

// once runs penstock with an input and a sink without readable output. So it relies on the number
// of delivered records that penstock reports.
func (e *env) once(in load.Input, config string) (measure, error) {
	j, err := e.job(in, config)
	if err != nil {
		return measure{}, err
	}
	r, s, err := j.once()
	m := of(r, in)
	m.lost, m.repeated = max(0, in.Records-s.Delivered), max(0, s.Delivered-in.Records)
	return m, err
}

// limit runs the program of package bench/limit with the given name on an input.
func (e *env) limit(in load.Input, name string, more ...string) (measure, error) {
	r, err := proc.Self(append([]string{"limit", name, in.Path}, more...)...)
	return of(r, in), err
}
