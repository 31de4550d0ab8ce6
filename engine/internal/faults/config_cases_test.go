//go:build linux

package faults

import (
	"os"
	"regexp"
	"strings"
)

// configCases are configs that must be refused before anything starts.
func configCases() (table []faultCase) {
	const source, sink = "source: { spool_dir: { path: ./in } }",
		"sink: { file: { path: ./out.log } }"
	pipeline := func(lines ...string) string {
		return "state: ./state\npipelines:\n  p:\n    " + strings.Join(lines, "\n    ") + "\n"
	}
	for _, x := range []struct{ name, config string }{
		{"empty", ""},
		{"garbage", "\x00\x01\x02"},
		{"a list", "- a\n- b\n"},
		{"a tab", "pipelines:\n\tp: {}\n"},
		{"two documents", pipeline(source, sink) + "---\n" + pipeline(source, sink)},
		{"a key twice", pipeline(source, source, sink)},
		{"no pipelines", "state: ./state\n"},
		{"no source", pipeline(sink)},
		{"no sink", pipeline(source)},
		{"two sources", pipeline("source: { spool_dir: { path: ./in }, tail: { include: "+
			"[./in/*] } }", sink)},
		{"an unknown sink", pipeline(source, "sink: { flie: { path: ./out.log } }")},
		{"an unknown option", pipeline(source, "sink: { file: { pth: ./out.log } }")},
		{"an unknown route key", pipeline(source, sink, "bacth: { records: 5 }")},
		{"a duration without a unit", pipeline(source, sink, "drain: 5")},
		{"a negative duration", pipeline(source, sink, "drain: -5s")},
		{"a size that is no number", pipeline(source, sink, "batch: { bytes: many }")},
		{"a replay below the batch", pipeline(source, sink, "checkpoint: { replay: 1KiB }")},
		{"a missing variable", pipeline(source, "sink: { file: { path: \"${FAULTS_MISSING}\" } }")},
		{"a missing secret file", pipeline(source,
			"sink: { http: { endpoints: [\"http://127.0.0.1:1\"], bearer: "+
				"\"${file:/nowhere}\" } }")},
		{"an endpoint without a scheme",
			pipeline(source, "sink: { http: { endpoints: [\"127.0.0.1:1/in\"] } }")},
		{"an endpoint of another scheme",
			pipeline(source, "sink: { http: { endpoints: [\"ftp://127.0.0.1/in\"] } }")},
		{"no endpoints", pipeline(source, "sink: { http: { endpoints: [] } }")},
		{"an expression that does not parse",
			pipeline(source, "processors: [{ where: 'a ==' }]", sink)},
		{"an unknown field", pipeline(source,
			"processors: [{ parse: { format: combined } }, { where: 'statsu >= 400' }]", sink)},
		{"a regular expression that does not parse", pipeline(source,
			"processors: [{ parse: { format: regex, pattern: '(' } }]", sink)},
		{"one output for two routes", "state: ./state\npipelines:\n  p:\n    " + source +
			"\n    " + sink +
			"\n  q:\n    " + source + "\n    " + sink + "\n"},
		{"a pipeline name with a space",
			"state: ./state\npipelines:\n  \"p q\":\n    " + source + "\n    " + sink +
				"\n"},
		{"an exec without a command", pipeline(source, "sink: { exec: { command: [] } }")},
		{"an exec protocol that is unknown",
			pipeline(source, "sink: { exec: { command: [cat], protocol: grpc } }")},
		{"an upsert without a key", pipeline(source,
			"sink: { sqlite: { path: ./out.db, table: t, mode: upsert } }")},
		{"a fixed window without a size", pipeline(source, sink, "flow: { window: fixed }")},
		{"an admin address off loopback without a token",
			"admin: 0.0.0.0:7070\n" + pipeline(source, sink)},
	} {
		table = append(table, faultCase{
			name: "config/" + x.name, holds: "exit code 2 with file and line, and no file is made",
			run: func(r *rig) { r.refuses(x.config) },
		})
	}
	return table
}

var place = regexp.MustCompile(`penstock\.yaml(:\d+:\d+)?: `)

// refuses runs and validates a config. Both commands must report an error, with its position in the
// file.
func (r *rig) refuses(config string) {
	r.write("penstock.yaml", config)
	r.write("in/a.log", record(0, 5)+"\n")
	for _, args := range [][]string{{"validate", "penstock.yaml"},
		{"run", "--once", "--json", "penstock.yaml"}, {"run",
			"penstock.yaml"}} {
		p := r.start(launch{args: args})
		code := p.expect(2)
		if !place.MatchString(p.stderr.String()) {
			r.errorf("%s: stderr names no place: %q", args[0], tail(p.stderr.String(), 500))
		}
		if args[len(args)-2] == "--json" {
			p.summary(code)
		}
	}
	files, err := os.ReadDir(r.dir)
	r.check(err)
	for _, f := range files {
		if f.Name() != "penstock.yaml" && f.Name() != "in" {
			r.errorf("%s was made", f.Name())
		}
	}
}
