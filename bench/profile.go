package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
	"github.com/penstock-io/penstock/bench/result"
)

// profiled has the load with which a workload is profiled.
type profiled struct {
	config  func(e *env, urls []string) (string, error) // urls are the four URLs of the receiver
	behaves receiver.Behaviour
	input   func(e *env) (load.Input, error) // nil means access log lines
	live    func(e *env) live                // used instead of input
}

// profiledAs has the loads of the workloads that can be profiled.
var profiledAs = map[string]profiled{
	"w1":           {config: constant(toDrop)},
	"w1_real":      {config: constant(toDrop), input: realLogs},
	"w1_gzip":      {config: constant(toDrop), input: packedBy("gzip")},
	"w1_zstd":      {config: constant(toDrop), input: packedBy("zstd")},
	"w2":           {config: constant(toFile("interval"))},
	"w2_ack":       {config: constant(toFile("ack"))},
	"w3":           {config: postedRaw("")},
	"w3_real":      {config: postedRaw(""), input: realLogs},
	"w4_json":      {config: constant(parsing("json", intoJSON)), input: jsonLines},
	"w4_json_http": {config: postedJSON, input: jsonLines},
	"w4_combined":  {config: constant(parsing("combined", intoJSON))},
	"w4_dissect":   {config: constant(parsing("dissect", intoJSON))},
	"w4_regex":     {config: constant(parsing("regex", intoJSON))},
	"w5":           {config: postedRaw(slowBatches), behaves: slow50.behaviour()},
	"w5_500ms":     {config: postedRaw(slowBatches), behaves: slow500.behaviour()},
	"w7_backlog":   {config: postedRaw(""), behaves: flaky},
	"w8":           {config: constant(toSQLite)},
	"w9":           {config: func(e *env, _ []string) (string, error) { return intoTable(e) }},
	"w10":          {live: hundred},
}

func constant(text string) func(*env, []string) (string, error) {
	return func(*env, []string) (string, error) { return text, nil }
}

func postedRaw(more string) func(*env, []string) (string, error) {
	return func(_ *env, urls []string) (string, error) {
		if more != "" {
			urls = urls[:1] // as in the workload
		}
		return toHTTP(urls, more), nil
	}
}

func postedJSON(_ *env, urls []string) (string, error) {
	return parsing("json", "{ http: { endpoints: ["+strings.Join(urls, ", ")+"] } }"), nil
}

func realLogs(e *env) (load.Input, error)  { return e.input(load.Real, profiledBytes) }
func jsonLines(e *env) (load.Input, error) { return e.input(load.JSON, profiledBytes) }

func packedBy(program string) func(e *env) (load.Input, error) {
	return func(e *env) (load.Input, error) {
		in, err := e.input(load.Combined, profiledBytes)
		if err != nil {
			return in, err
		}
		return e.packed(program, in)
	}
}

// profiledBytes is the size of the input file. Penstock reads copies of it until the profile is
// complete.
const profiledBytes = 256 * mib

// intoJSON is the sink of the workloads that parse records.
const intoJSON = "{ file: { path: ./out.json, format: ndjson, fsync: interval } }"

// profile is the subcommand `profile -w WORKLOAD`. It draws a flame graph of a workload.
func profile(args []string) error {
	var o options
	flags := flag.NewFlagSet("profile", flag.ContinueOnError)
	name := flags.String("w", "w1", "the workload")
	seconds := flags.Int("seconds", 5, "how long to look")
	out := flags.String("out", "out", "folder for NAME.pprof and NAME.svg")
	keep := flags.Bool("keep", false, "the graph becomes "+keptProfiles+
		"-NAME.svg, and the shares are kept for docs/performance.md")
	flags.StringVar(&o.penstock, "penstock", "../bin/penstock", "the program to look at")
	if err := flags.Parse(args); err != nil {
		return err
	}
	e, err := newEnv(o)
	if err != nil {
		return err
	}
	shares, err := e.profile(*name, *seconds, *out)
	if err == nil && *keep {
		err = keepProfile(e, *name, *out, shares)
	}
	return errors.Join(err, e.close())
}

// profile profiles a workload for the given number of seconds. It returns the share of the CPU time
// for each part of the program.
func (e *env) profile(name string, seconds int, out string) ([]result.Share, error) {
	w, ok := profiledAs[name]
	if !ok {
		return nil, fmt.Errorf("profile: %q is not one of the workloads to profile: %s", name,
			strings.Join(keys(profiledAs), ", "))
	}
	w.behaves.Records = 1 << 20
	rec, err := receiver.Start(w.behaves)
	if err != nil {
		return nil, err
	}
	defer rec.Stop()
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	look := func(done chan<- error) {
		done <- fetch(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, seconds),
			out, name)
	}
	head := fmt.Sprintf("admin: { address: %q, pprof: true }\n", address)
	if w.live != nil {
		err = e.profileLive(w.live(e), head, rec, seconds, look)
	} else {
		err = e.profileFed(w, head, rec, look)
	}
	if err != nil {
		return nil, err
	}
	return flame(name, e.penstock, out)
}

// profileFed puts files into the spool directory while the function look takes a profile.
func (e *env) profileFed(w profiled, head string, rec *receiver.Receiver,
	look func(chan<- error)) error {
	text, err := w.config(e, rec.Endpoints(4))
	if err != nil {
		return err
	}
	j, err := e.job(load.Input{}, head+strings.Replace(text, "finished: keep",
		"finished: delete, quiet_period: 10ms", 1))
	if err != nil {
		return err
	}
	if w.input == nil {
		w.input = func(e *env) (load.Input, error) { return e.input(load.Combined, profiledBytes) }
	}
	in, err := w.input(e)
	if err != nil {
		return err
	}
	p, err := j.start(false)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go look(done)
	err = j.feedUntil(in, done)
	_, stopErr := p.Stop(patience)
	return errors.Join(err, stopErr)
}

// profileLive writes lines at the rate of the workload while the function look takes a profile.
func (e *env) profileLive(l live, head string, rec *receiver.Receiver, seconds int,
	look func(chan<- error)) error {
	block, err := e.timed()
	if err != nil {
		return err
	}
	_, source := e.growing()
	j, err := e.job(load.Input{}, head+l.config(source, rec.Endpoints(4)))
	if err != nil {
		return err
	}
	l.seconds = float64(seconds) + 2*settleIn.Seconds()
	feeder, p, err := l.start(e, j, int64(float64(l.rate)*l.seconds)*int64(
		block.Lines())/block.Bytes())
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go look(done)
	err = os.WriteFile(j.path("go"), nil, 0o600)
	if err == nil {
		err = <-done
	}
	feeder.Kill()
	_, stopErr := p.Stop(patience)
	return errors.Join(err, stopErr)
}

// filesAhead is the maximum number of files that wait in the spool directory.
const filesAhead = 2

// feedUntil puts copies of the input into the spool directory, so that penstock always has data. It
// returns when it receives a value from done, or after an error.
func (j *job) feedUntil(in load.Input, done <-chan error) error {
	for n := 0; ; {
		waiting, err := filepath.Glob(j.path("spool/*.log"))
		if err != nil {
			return err
		}
		if len(waiting) < filesAhead {
			// The copy is written outside the spool directory and then renamed, because penstock
			// would read an incomplete file in the directory.
			part := j.path(fmt.Sprintf("%d.part", n))
			if _, err := proc.Self("limit", "copy", in.Path, part); err != nil {
				return err
			}
			if err := os.Rename(part, j.path(fmt.Sprintf("spool/%d.log", n))); err != nil {
				return err
			}
			n++
		}
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// fetch writes the content of a URL to a file. Before the request, it waits for the time settleIn,
// so that the server can start.
func fetch(url, out, name string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	time.Sleep(settleIn)
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, res.Status, text)
	}
	return os.WriteFile(filepath.Join(out, name+".pprof"), text, 0o644)
}
