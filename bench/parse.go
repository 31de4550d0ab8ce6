package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/proc"
	"github.com/penstock-io/penstock/bench/receiver"
)

// pattern is a regular expression with eight groups that matches an access log line.
const pattern = `^(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<timestamp>[^\]]+)\] "(?P<request>[^"]*)" ` +
	`(?P<status>\d+) (?P<size>\S+) "(?P<referrer>[^"]*)" "(?P<agent>.*)"$`

// parsers are different processors that parse an access log line, as YAML.
var parsers = map[string]string{
	"combined": "{ format: combined }",
	"dissect": `{ format: dissect, types: { status: integer, size: integer }, pattern: ` +
		`'%{host} %{identity} %{user} [%{timestamp}] "%{request}" %{status} %{size} ` +
		`"%{referrer}" "%{agent}' }`,
	"regex": "{ format: regex, pattern: '" + pattern + "' }",
	"json":  "{ format: json }",
}

// parsing returns a config that parses records. For JSON records, the config also adds a field and
// removes another one. sink is the sink of the config as YAML.
func parsing(format, sink string) string {
	change := ""
	if format == "json" {
		change = "      - set: { dc: '\"eu-1\"' }\n      - drop: [level]\n"
	}
	return fromSpool + "    processors:\n      - parse: " + parsers[format] + "\n" + change +
		"    sink: " + sink + "\n"
}

// parsed runs penstock with a config that parses the lines in the given format and writes JSON to a
// file.
func (e *env) parsed(in load.Input, format string) (measure, error) {
	j, err := e.job(in, parsing(format, intoJSON))
	if err != nil {
		return measure{}, err
	}
	r, _, err := j.once()
	m := of(r, in)
	if err != nil {
		return m, err
	}
	out := j.path("out.json")
	defer os.Remove(out)
	if err := m.countIn(out); err != nil {
		return m, err
	}
	if format == "json" {
		return m, changedAsAsked(in.Path, out)
	}
	return m, nil
}

// parsedAndPosted is like parsed, but sends the JSON over HTTP.
func parsedAndPosted(e *env, in load.Input) (measure, error) {
	return received(in, receiver.Behaviour{}, func(rec *receiver.Receiver) (proc.Run, error) {
		urls := rec.Endpoints(4)
		sink := fmt.Sprintf("{ http: { endpoints: [%s, %s, %s, %s] } }", urls[0], urls[1], urls[2],
			urls[3])
		j, err := e.job(in, parsing("json", sink))
		if err != nil {
			return proc.Run{}, err
		}
		r, _, err := j.once()
		return r, err
	})
}

// encodedByGo measures encoding/json in one goroutine. It uses only a part of the input, because it
// is slow.
func encodedByGo(e *env, in load.Input) (measure, error) {
	part, err := e.input(in.Kind, in.Bytes/8)
	if err != nil {
		return measure{}, err
	}
	to := filepath.Join(e.dir, "encoded")
	defer os.Remove(to)
	return e.limit(part, "encoding_json", to)
}

// matchedByGo measures only the regular expression, on a part of the input.
func matchedByGo(e *env, in load.Input) (measure, error) {
	part, err := e.input(in.Kind, in.Bytes/4)
	if err != nil {
		return measure{}, err
	}
	return e.limit(part, "regexp", pattern)
}

// checkedLines is the number of output lines that are compared with the expected lines. The input
// repeats lines after that, and only the number in each line is new.
const checkedLines = 20_000

// changedAsAsked returns an error if one of the first output lines (checkedLines) is not the
// expected one: the line of the input, with one member added at the end and one removed. The order
// of keys and all other values must be unchanged.
func changedAsAsked(in, out string) error {
	fin, err := os.Open(in)
	if err != nil {
		return err
	}
	defer fin.Close()
	fout, err := os.Open(out)
	if err != nil {
		return err
	}
	defer fout.Close()
	from, to := bufio.NewReader(fin), bufio.NewReader(fout)
	for n := range checkedLines {
		a, errA := from.ReadBytes('\n')
		b, errB := to.ReadBytes('\n')
		if errA != nil || errB != nil {
			return nil // the number of lines is checked elsewhere
		}
		want, err := changed(a)
		if err != nil {
			return err
		}
		if !bytes.Equal(bytes.TrimSpace(b), want) {
			return fmt.Errorf("line %d is %.300s, want %.300s", n+1, b, want)
		}
	}
	return nil
}

// changed returns the expected output for a line. It reads the line token by token with
// encoding/json.
func changed(line []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if key == "level" {
			continue
		}
		out = fmt.Appendf(out, "%q:%s,", key, value)
	}
	return append(out, `"dc":"eu-1"}`...), nil
}
