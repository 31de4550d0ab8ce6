package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/plot"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
)

// profiled are the configs of the workloads that can be profiled; urls are four of a receiver.
var profiled = map[string]func(urls []string) string{
	"w1":      func([]string) string { return toDrop },
	"w2":      func([]string) string { return toFile("interval") },
	"w2_ack":  func([]string) string { return toFile("ack") },
	"w3":      func(urls []string) string { return toHTTP(urls, "") },
	"w4_json": func([]string) string { return parsing("json", "{ file: { path: ./out.log, fsync: interval } }") },
	"w4_json_http": func(urls []string) string {
		return parsing("json", "{ http: { endpoints: ["+strings.Join(urls, ", ")+"] } }")
	},
	"w4_combined": func([]string) string { return parsing("combined", "{ file: { path: ./out.log, fsync: interval } }") },
	"w4_dissect":  func([]string) string { return parsing("dissect", "{ file: { path: ./out.log, fsync: interval } }") },
	"w4_regex":    func([]string) string { return parsing("regex", "{ file: { path: ./out.log, fsync: interval } }") },
	"w8":          func([]string) string { return toSQLite },
	"w10": func(urls []string) string {
		return "state: ./state\npipelines:\n  bench:\n    source: " + fromTail + "\n" +
			"    sink: { http: { endpoints: [" + strings.Join(urls, ", ") + "], body: raw } }\n"
	},
}

// profile is a flame graph of one workload: profile -w w1.
func profile(args []string) error {
	var o options
	flags := flag.NewFlagSet("profile", flag.ContinueOnError)
	name := flags.String("w", "w1", "the workload")
	seconds := flags.Int("seconds", 5, "how long to look")
	out := flags.String("out", "out", "folder for NAME.pprof and NAME.svg")
	flags.StringVar(&o.penstock, "penstock", "../bin/penstock", "the program to look at")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config := profiled[*name]
	if config == nil {
		return fmt.Errorf("profile: %q is none of the workloads that can be: %s", *name, strings.Join(keys(profiled), ", "))
	}
	e, err := newEnv(o)
	if err != nil {
		return err
	}
	err = e.profile(*name, config, *seconds, *out)
	return errors.Join(err, e.close())
}

func (e *env) profile(name string, config func([]string) string, seconds int, out string) error {
	rec, err := receiver.Start(receiver.Behaviour{Records: 1 << 20})
	if err != nil {
		return err
	}
	defer rec.Stop()
	address, err := freeAddress()
	if err != nil {
		return err
	}
	text := strings.Replace(config(rec.Endpoints(4)), "finished: keep", "finished: delete, settle: 10ms", 1)
	j, err := e.job(load.Input{}, fmt.Sprintf("admin: { address: %q, pprof: true }\n", address)+text)
	if err != nil {
		return err
	}
	kind := load.Combined
	if strings.HasPrefix(name, "w4_json") {
		kind = load.JSON
	}
	in, err := e.input(kind, 256*mib)
	if err != nil {
		return err
	}
	p, err := j.start(false)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		done <- fetch(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", address, seconds), &out, name)
	}()
	if name == "w10" {
		err = e.hundred().growUntil(e, j, done)
	} else {
		err = j.feedUntil(in, done)
	}
	_, stopErr := p.Stop(patience)
	if err := errors.Join(err, stopErr); err != nil {
		return err
	}
	return flame(name, e.penstock, out)
}

// filesAhead is how many files may wait in the spool directory.
const filesAhead = 2

// feedUntil puts copies of the input into the spool directory, so that there is always work, until done.
func (j *job) feedUntil(in load.Input, done <-chan error) error {
	for n := 0; ; {
		waiting, err := filepath.Glob(j.path("spool/*.log"))
		if err != nil {
			return err
		}
		if len(waiting) < filesAhead {
			part := j.path(fmt.Sprintf("spool/%d.part", n))
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

// growUntil has files grow until done.
func (l live) growUntil(e *env, j *job, done <-chan error) error {
	const endless = 1 << 40
	if err := os.WriteFile(j.path("go"), nil, 0o600); err != nil {
		return err
	}
	feeder, err := l.feed(e, j, endless)
	if err != nil {
		return err
	}
	defer feeder.Kill()
	return <-done
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// fetch writes what a URL gives into a file, once there is somebody who answers.
func fetch(url string, out *string, name string) error {
	if err := os.MkdirAll(*out, 0o755); err != nil {
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
	return os.WriteFile(filepath.Join(*out, name+".pprof"), text, 0o644)
}

// flame makes the graph of a profile, and prints the functions that took most.
func flame(name, program, out string) error {
	file := filepath.Join(out, name+".pprof")
	traces, err := proc.Do("go", "tool", "pprof", "-traces", program, file)
	if err != nil {
		return err
	}
	stacks, err := parseTraces(traces.Out)
	if err != nil {
		return err
	}
	svg := filepath.Join(out, name+".svg")
	graph := plot.Flame("Where "+name+" spends its processor time", "width: share of the samples; callers stand above", stacks)
	if err := os.WriteFile(svg, []byte(graph), 0o644); err != nil {
		return err
	}
	top, err := exec.Command("go", "tool", "pprof", "-top", "-nodecount=25", program, file).Output()
	fmt.Printf("%s\n%s: the flame graph; go tool pprof %s: more\n", top, svg, file)
	return err
}

// parseTraces reads what `pprof -traces` prints: blocks of a value and a leaf, then its callers, between lines of dashes.
func parseTraces(text []byte) (all []plot.Stack, err error) {
	for block := range bytes.SplitSeq(text, []byte("-----------+")) {
		var s plot.Stack
		for line := range strings.Lines(string(block)) {
			fields := strings.Fields(line)
			switch {
			case len(fields) == 0 || strings.HasPrefix(line, "---"):
				continue
			case len(s.Functions) == 0:
				took, err := time.ParseDuration(fields[0])
				if err != nil || len(fields) < 2 {
					continue // the head, or a label
				}
				s.Value, fields = took.Seconds(), fields[1:]
			}
			s.Functions = append([]string{strings.Join(fields, " ")}, s.Functions...)
		}
		if len(s.Functions) > 0 {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the profile holds no samples")
	}
	return all, nil
}
