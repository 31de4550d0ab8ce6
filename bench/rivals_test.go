package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/rival"
)

// harness is the environment variable that makes the test binary act as the harness.
const harness = "BENCH_TEST_HARNESS"

// TestMain lets the test binary also run as the command bench or as one of its subcommands, because
// bench starts its receiver and its limits (minimal programs) as processes of its own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if part := parts[os.Args[1]]; part != nil {
			exit(part(os.Args[2:]))
		}
	}
	if os.Getenv(harness) != "" {
		main()
	}
	os.Exit(m.Run())
}

func script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// generated is a program that prints lines when called with generate.
const generated = `case $1 in generate) for i in 1 2 3 4 5 6 7 8; do
  echo '10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 7 "-" "agent"'
done;; esac
`

// fakeVector is a script in place of vector. It does the work that its config demands: it copies,
// posts or drops the input. For this it uses the programs of bench.
const fakeVector = `[ "$1" = --version ] && { echo fake 1; exit; }
in=$(sed -n 's/.*include: \["\([^"]*\)"\].*/\1/p' "$3")
out=$(sed -n 's/.* path: "\([^"]*\)".*/\1/p' "$3")
uri=$(sed -n 's/.*uri: "\([^"]*\)".*/\1/p' "$3")
exec 3<"$in"
if [ -n "$out" ]; then BENCH limit copy "$in" "$out"
elif [ -n "$uri" ]; then BENCH limit post "$in" "$uri"
else cat <&3 >/dev/null; fi
exec sleep 60
`

// TestRivalByPath checks that a rival given by its path is measured on each workload for which it
// has a config. None of its records may be lost or repeated.
func TestRivalByPath(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	given := rivalFlags{}
	if err := given.Set("vector=" + script(t, "vector",
		strings.ReplaceAll(fakeVector, "BENCH", self))); err != nil {
		t.Fatal(err)
	}
	e, err := newEnv(options{penstock: script(t, "penstock", generated), rivals: given,
		dir: t.TempDir(), json: true})
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.input(load.Combined, 1*mib)
	if err != nil {
		t.Fatal(err)
	}
	for _, workload := range []string{"w1", "w2", "w3"} {
		var c contender
		for _, found := range e.rivalsIn(workload) {
			if found.name == "vector" {
				c = found
			}
		}
		if c.run == nil {
			t.Fatalf("%s: the rival given by its path is no contender", workload)
		}
		m, err := c.run(e, in)
		if err != nil || m.lost != 0 || m.repeated != 0 || m.Seconds <= 0 || m.bytes > in.Bytes/4 ||
			m.bytes < in.Bytes/5 {
			t.Errorf("%s: %+v, %v; want a quarter of %d bytes, none lost", workload, m, err,
				in.Bytes)
		}
	}
	for _, p := range e.found {
		if p.Name == "vector" && p.Version() != "fake 1" {
			t.Errorf("its version is %q", p.Version())
		}
	}
}

// TestRivalThatFails checks a rival that ends early, is missing, or has no config. There must be no
// measurement of it.
func TestRivalThatFails(t *testing.T) {
	given := rivalFlags{"vector": script(t, "vector", "echo no such option; exit 3\n")}
	e, err := newEnv(options{penstock: script(t, "penstock", generated), rivals: given,
		dir: t.TempDir(), json: true})
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.input(load.Combined, 1*mib)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range e.rivalsIn("w2") {
		if c.name != "vector" {
			continue
		}
		if _, err := c.run(e, in); err == nil || !strings.Contains(err.Error(), "no such option") {
			t.Errorf("a rival that ends: %v", err)
		}
	}
	for _, wrong := range []rivalFlags{{"vector": "/not/there"}, {"unheard-of": "/bin/true"}} {
		if _, err := newEnv(options{rivals: wrong}); err == nil {
			t.Errorf("%v passes", wrong)
		}
	}
	if given.Set("vector") == nil {
		t.Error("a name without a path passes")
	}
}

// TestConfigs checks that each rival has a config for each workload that it supports. The config
// must name the input and the output.
func TestConfigs(t *testing.T) {
	all := strings.Join(rival.Names(), " ")
	for _, name := range strings.Fields(
		"rsyslog syslog-ng fluent-bit vector otelcol telegraf logstash loggie flume") {
		if !strings.Contains(all, name) {
			t.Errorf("%s has no config; there are %s", name, all)
		}
	}
	for _, name := range rival.Names() {
		for _, workload := range []string{"w1", "w2", "w3"} {
			j := rival.Job{Workload: workload, Dir: "/job", Input: "/in.log", Out: "/job/out.log",
				URL: "http://127.0.0.1:4711"}
			text := fmt.Sprint(rival.Configs(name, j))
			if name == "loggie" && workload == "w2" {
				continue // its file sink keeps the last records back
			}
			if !strings.Contains(text, "/in.log") {
				t.Errorf("%s, %s: the config does not read the input: %s", name, workload, text)
			}
			if workload == "w2" && !strings.Contains(text, "/job/out.log") &&
				!strings.Contains(text, "/job/"+rival.Rolled) {
				t.Errorf("%s writes elsewhere: %s", name, text)
			}
			if workload == "w3" && !strings.Contains(text, "4711") {
				t.Errorf("%s posts elsewhere: %s", name, text)
			}
		}
	}
}
