package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
)

// doctored lists the outputs of faulty programs, as changes to the numbered lines of the input.
var doctored = []struct {
	name           string
	change         func(lines [][]byte) [][]byte
	lost, repeated int64
	// the expected complaint for a file that must be identical; "" if the counts are enough
	inFile string
}{
	{"as they were", func(lines [][]byte) [][]byte { return lines }, 0, 0, ""},
	{"one lost", func(lines [][]byte) [][]byte { return slices.Delete(lines, 77, 78) }, 1, 0, ""},
	{"the last lost", func(lines [][]byte) [][]byte { return lines[:len(lines)-1] }, 1, 0, ""},
	{"one repeated", func(lines [][]byte) [][]byte {
		return slices.Insert(lines, 50, lines[40])
	}, 0, 1, ""},
	{"one lost, another in its place", func(lines [][]byte) [][]byte {
		lines[7] = lines[8]
		return lines
	}, 1, 1, ""},
	{"two the other way round", func(lines [][]byte) [][]byte {
		lines[3], lines[4] = lines[4], lines[3]
		return lines
	}, 0, 0,
		"differs from the input"},
	{"a letter changed", func(lines [][]byte) [][]byte {
		lines[9] = append([]byte("X"), lines[9][1:]...)
		return lines
	}, 0, 0, "differs from the input"},
}

// numbered returns an input of a few hundred lines, and its lines.
func numbered(t *testing.T) (*env, load.Input, func() [][]byte) {
	t.Helper()
	e, err := newEnv(options{penstock: script(t, "penstock", generated), dir: t.TempDir(),
		json: true})
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.input(load.Combined, 32<<10)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(in.Path)
	if err != nil || in.Records < 100 {
		t.Fatalf("%d records, %v", in.Records, err)
	}
	return e, in, func() [][]byte { return slices.Collect(bytes.Lines(bytes.Clone(text))) }
}

// TestDoctoredOutputs changes the output of a run, so that records are lost or repeated. The checks
// of a file, of a table and of a receiver must all notice this, with the right numbers.
func TestDoctoredOutputs(t *testing.T) {
	_, in, lines := numbered(t)
	for _, c := range doctored {
		out := c.change(lines())
		for where, count := range map[string]func() (measure, error){
			"file":     func() (measure, error) { return countedInFile(t, in, out) },
			"table":    func() (measure, error) { return countedInTable(t, in, out) },
			"receiver": func() (measure, error) { return countedAtReceiver(in, out) },
		} {
			m, err := count()
			if m.lost != c.lost || m.repeated != c.repeated {
				t.Errorf("%s, %s: %d lost, %d repeated, want %d, %d", c.name, where, m.lost,
					m.repeated, c.lost, c.repeated)
			}
			differs := where == "file" && c.inFile != ""
			if (err != nil) != differs || differs && !strings.Contains(err.Error(), c.inFile) {
				t.Errorf("%s, %s: %v", c.name, where, err)
			}
		}
	}
}

func countedInFile(t *testing.T, in load.Input, lines [][]byte) (measure, error) {
	path := filepath.Join(t.TempDir(), "out.log")
	if err := os.WriteFile(path, slices.Concat(lines...), 0o600); err != nil {
		t.Fatal(err)
	}
	m := of(proc.Run{}, in)
	return m, m.compare(in, path)
}

func countedInTable(t *testing.T, in load.Input, lines [][]byte) (measure, error) {
	path := filepath.Join(t.TempDir(), "out.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("PRAGMA synchronous = OFF; " +
		"CREATE TABLE lines (message TEXT); BEGIN"); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if _, err := db.Exec("INSERT INTO lines VALUES (?)", string(line)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	m := of(proc.Run{}, in)
	return m, m.countRows(path)
}

func countedAtReceiver(in load.Input, lines [][]byte) (measure, error) {
	return received(in, receiver.Behaviour{}, func(rec *receiver.Receiver) (proc.Run, error) {
		for body := range slices.Chunk(lines, 60) {
			res, err := http.Post(rec.URL+"/0", "text/plain",
				bytes.NewReader(slices.Concat(body...)))
			if err != nil {
				return proc.Run{}, err
			}
			res.Body.Close()
		}
		return proc.Run{}, nil
	})
}

// TestDoctoredJSON changes values in JSON output. The run must not count as a measurement, although
// no record is missing.
func TestDoctoredJSON(t *testing.T) {
	for _, c := range []struct{ out, wrong string }{
		{`{"id":"~1~","n":778.4350,"k":1,"dc":"eu-1"}`, ""},
		{`{"id":"~1~","n":778.435,"k":1,"dc":"eu-1"}`, "line 1 is"},
		{`{"id":"~1~","k":1,"n":778.4350,"dc":"eu-1"}`, "line 1 is"},
		{`{"id":"~1~","level":"info","n":778.4350,"k":1,"dc":"eu-1"}`, "line 1 is"},
	} {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
		for path, text := range map[string]string{
			in: `{"id":"~1~","level":"info","n":778.4350,"k":1}`, out: c.out} {
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := changedAsAsked(in, out)
		if (err != nil) != (c.wrong != "") ||
			err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v", c.out, err)
		}
	}
}

// TestTargetsOfCounts checks that every workload has targets for the lost and the repeated records.
// The workloads with kills (w6) must also have a target for the number of kills.
func TestTargetsOfCounts(t *testing.T) {
	for _, w := range workloads {
		if w.name == limitsName {
			continue
		}
		text := fmt.Sprint(w.want.targets())
		if !strings.Contains(text, "0 lost") || !strings.Contains(text, "repeated") {
			t.Errorf("%s lacks a target of what is lost or repeated: %s", w.name, text)
		}
		if strings.HasPrefix(w.name, "w6") != strings.Contains(text, "≥ 5 kills") {
			t.Errorf("%s: the targets are %s", w.name, text)
		}
	}
}

// TestOrderOfRounds checks that every second round runs the programs, and the limit with which they
// are compared, in reverse order. Other programs must run in the warm-up round, as penstock does.
func TestOrderOfRounds(t *testing.T) {
	for _, c := range []struct {
		figures bool
		pairs   int64
		want    string
	}{
		{false, 1, "limit penstock other "},
		{false, 4, "limit penstock other limit penstock other other penstock limit limit " +
			"penstock other penstock limit "},
		{true, 4, "limit penstock other limit penstock other penstock limit limit penstock " +
			"penstock limit "},
	} {
		var order strings.Builder
		take := func(name string) func(*env, load.Input) (measure, error) {
			return func(*env, load.Input) (measure, error) {
				order.WriteString(name + " ")
				return of(proc.Run{Seconds: 1}, load.Input{Bytes: 1}), nil
			}
		}
		s := &series{
			e: &env{options: options{figures: c.figures, json: true}},
			w: workload{name: "w", limitName: "limit", limit: take("limit"),
				pairs: quickOrFull{c.pairs, c.pairs}},
			contenders: []contender{{ours, take(ours)}, {"other", take("other")}},
		}
		if err := s.run(); err != nil {
			t.Fatal(err)
		}
		if order.String() != c.want {
			t.Errorf("%d pairs, figures %v: %s, want %s", c.pairs, c.figures,
				order.String(), c.want)
		}
	}
}
