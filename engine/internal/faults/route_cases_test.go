//go:build linux

package faults

import (
	"fmt"
	"strings"
)

// routeCases run two routes of one pipeline: a fault of one must not delay the other.
func routeCases() (table []faultCase) {
	for _, x := range []struct{ name, sink string }{
		{"hangs", `http: { endpoints: ["{hang}"], body: raw }`},
		{"refuses connections", `http: { endpoints: ["http://127.0.0.1:1/in"], body: raw }`},
		{"has no name", `http: { endpoints: ["http://no-such-host.invalid/in"], body: raw }`},
		{"has a full disk", `file: { path: /dev/full }`},
		{"is a missing program", `exec: { command: [./none] }`},
		{"exits 64", `exec: { command: [bash, -c, "exit 64"] }`},
		{"has a folder as database", `sqlite: { path: ./folder, table: t }`},
		{"has no PostgreSQL", `postgres: { url: ` +
			`"postgres://a@127.0.0.1:1/b?sslmode=disable", table: t }`},
		{"has no MariaDB", `mysql: { url: "a@tcp(127.0.0.1:1)/b", table: t }`},
	} {
		for _, from := range []source{spoolSource, tailSource} {
			table = append(table, faultCase{
				name: "routes/one of two sinks " + x.name + "/" + from.name,
				holds: "the other route delivers everything, and the run ends with 1 and " +
					"names the first",
				run: func(r *rig) { r.twoRoutes(from, x.sink) },
			})
		}
	}
	return append(table, secretCases()...)
}

func (r *rig) twoRoutes(from source, sink string) {
	from.fill(r, records(0, 2000, 20))
	r.write("folder/x", "")
	hanging := r.receive(reply{discard: true, end: hang}, always, false)
	r.write("penstock.yaml", "state: ./state\npipelines:\n  p:\n    source: { "+from.yaml+
		" }\n    routes:\n"+
		"      bad:\n        sink: { "+strings.ReplaceAll(sink, "{hang}",
		hanging.url())+" }\n        flow: { abandon: 1s }\n        drain: 1s\n"+
		"      good:\n        sink: { file: { path: ./out.log, format: raw } }\n        batch: "+
		"{ records: 100, linger: 20ms }\n")
	p := r.start(launch{args: []string{"run", "--once", "--json",
		"--stall", "20s", // the good route ends earlier by itself, even on a busy machine
		"penstock.yaml"}})
	code := p.expect(1)
	s := p.summary(code)
	got := storedIn("out.log")(r)
	if missing := got.lost(2000); len(missing) > 0 {
		r.errorf("the good route lost %d records", len(missing))
	}
	if got.repeated() > 0 || got.invented(2000) > 0 {
		r.errorf("the good route repeated %d records and invented %d", got.repeated(),
			got.invented(2000))
	}
	if !strings.Contains(s.Error, "bad") {
		r.errorf("the error does not name the route: %s", s.Error)
	}
	for _, route := range s.Pipelines {
		if route.Route == "bad" && route.Delivered > 0 {
			r.errorf("%d records count as delivered to the bad sink", route.Delivered)
		}
	}
}

const secret = "hunter2hunter2"

// secretCases put a secret into each part of a config that may have one, and check that the program
// never prints it.
func secretCases() (table []faultCase) {
	for _, x := range []struct{ name, sink string }{
		{name: "bearer", sink: `http: { endpoints: ["http://127.0.0.1:1/in"], bearer: SECRET }`},
		{name: "bearer as a list", sink: `http: { endpoints: ["http://127.0.0.1:1/in"], ` +
			`bearer: [SECRET] }`},
		{name: "bearer as a mapping", sink: `http: { endpoints: ["http://127.0.0.1:1/in"], ` +
			`bearer: { token: SECRET } }`},
		{name: "basic", sink: `http: { endpoints: ["http://127.0.0.1:1/in"], basic: { user: ` +
			`u, password: SECRET } }`},
		{name: "userinfo", sink: `http: { endpoints: ["http://u:SECRET@127.0.0.1:1/in"] }`},
		{name: "userinfo of a URL that does not parse",
			sink: `http: { endpoints: ["http://u:SECRET@127.0.0.1:port/in"] }`},
		{name: "userinfo of another scheme",
			sink: `http: { endpoints: ["ftp://u:SECRET@127.0.0.1/in"] }`},
		{name: "query", sink: `http: { endpoints: ["http://127.0.0.1:1/in?token=SECRET"] }`},
		{name: "query named apikey", sink: `http: { endpoints: ` +
			`["http://127.0.0.1:1/in?apikey=SECRET&x=1"] }`},
		{name: "postgres URL",
			sink: `postgres: { url: ` +
				`"postgres://u:SECRET@127.0.0.1:1/b?sslmode=disable", table: t }`},
		{name: "postgres keywords",
			sink: `postgres: { url: "host=127.0.0.1 port=1 user=u password=SECRET", table: t }`},
		{name: "postgres URL that does not parse",
			sink: `postgres: { url: "postgres://u:SECRET@127.0.0.1:x/b", table: t }`},
		{name: "mysql URL", sink: `mysql: { url: "u:SECRET@tcp(127.0.0.1:1)/b", table: t }`},
		{name: "mysql URL that does not parse",
			sink: `mysql: { url: "u:SECRET@tcp(127.0.0.1:1", table: t }`},
		{name: "from a variable",
			sink: `http: { endpoints: ["http://127.0.0.1:1/in"], headers: { Authorization: ` +
				`"${TOKEN}" } }`},
		{name: "proxy", sink: `http: { endpoints: ["http://127.0.0.1:1/in"], proxy: ` +
			`"http://u:SECRET@127.0.0.1:1" }`},
	} {
		table = append(table, faultCase{
			name: "secrets/" + x.name, holds: "no output contains the secret",
			run: func(r *rig) { r.keepsSecret(x.sink) },
		})
	}
	return table
}

func (r *rig) keepsSecret(sink string) {
	r.write("in/a.log", record(0, 5)+"\n")
	r.write("penstock.yaml", "state: ./state\npipelines:\n  p:\n    source: { "+spoolSource.yaml+
		" }\n    sink: { "+
		strings.ReplaceAll(sink, "SECRET", secret)+" }\n    drain: 1s\n")
	for _, args := range [][]string{
		{"validate", "penstock.yaml"}, {"validate", "--json", "penstock.yaml"},
		{"run", "--once", "--stall", "1s", "--log-level", "debug", "penstock.yaml"},
		{"run", "--once", "--stall", "1s", "--json", "--log-format", "json", "penstock.yaml"},
	} {
		p := r.start(launch{args: args, env: []string{"TOKEN=" + secret}})
		p.expect(0, 1, 2)
		for line := range strings.Lines(p.stdout.String() + p.stderr.String()) {
			if strings.Contains(line, secret) {
				r.errorf("%s printed %s", fmt.Sprint(args), tail(line, 300))
			}
		}
	}
}
