//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// daemonCases check a running process. /readyz must report its true state. In each status, the
// number of read records must equal the sum of the delivered, in-flight, waiting, dead and dropped
// records.
func daemonCases() (table []faultCase) {
	for _, x := range []struct {
		name    string
		ready   bool // required state of /readyz within readyLimit and afterwards
		make    func() delivery
		prepare func(r *rig)
	}{
		{name: "an accepting receiver", ready: true, make: func() delivery { return toReceiver(accepts) }},
		{name: "a slow receiver", ready: true, make: func() delivery { return toReceiver(slowly) }},
		{name: "a throttling receiver", ready: true, make: func() delivery {
			return toReceiver(reply{name: "503", discard: true,
				answer: answers("503 No", "Retry-After: 1")})
		}},
		{name: "401", make: func() delivery {
			return toReceiver(reply{name: "401", discard: true,
				answer: answers("401 No")})
		}},
		{name: "403", make: func() delivery {
			return toReceiver(reply{name: "403", discard: true,
				answer: answers("403 No")})
		}},
		{name: "404", make: func() delivery {
			return toReceiver(reply{name: "404", discard: true,
				answer: answers("404 No")})
		}},
		{name: "a redirect", make: func() delivery {
			return toReceiver(reply{name: "302", discard: true,
				answer: answers("302 Found", "Location: /")})
		}},
		{name: "a certificate that is not trusted", make: func() delivery {
			return delivery{
				sink:     `http: { endpoints: ["{url}"], body: raw }`,
				receiver: func(r *rig, when schedule) *receiver { return r.receive(accepts, when, true) },
			}
		}},
		{name: "plain HTTP on a TLS endpoint", make: func() delivery {
			return delivery{
				sink:     `http: { endpoints: ["https:{url}"], body: raw }`,
				receiver: func(r *rig, when schedule) *receiver { return r.receive(accepts, when, false) },
			}
		}},
		{name: "a missing worker", make: func() delivery {
			return delivery{sink: `exec: { command: [./none] }`, stored: storedIn("got/*")}
		}},
		{name: "a worker that exits 78", make: func() delivery { return toWorker("exit 78") }},
		{name: "a missing processor", make: func() delivery {
			return delivery{
				processors: `{ exec: { command: [./none], protocol: lines } }`,
				sink:       `file: { path: ./out.log }`,
				stored:     storedIn("out.log"),
			}
		}},
		{name: "a parser that matches nothing", make: func() delivery {
			return delivery{
				processors: `{ parse: { format: combined } }`, sink: `file: { path: ./out.log }`,
				stored: storedIn("out.log"), dead: -1,
			}
		}},
		{name: "an unreadable folder",
			make:    func() delivery { return toSink("file", "out") },
			prepare: func(r *rig) { r.chmod("in", 0) }},
		{name: "an output that is a folder", make: func() delivery { return toSink("file", "out") },
			prepare: func(r *rig) { r.write("out/out.log/x", "") }},
		{name: "an output without permission", make: func() delivery { return toSink("file", "out") },
			prepare: func(r *rig) {
				r.write("out/x", "")
				r.chmod("out", 0o500)
			}},
	} {
		table = append(table, faultCase{
			name: "daemon/" + x.name,
			holds: fmt.Sprintf("/readyz says ready=%v, every status adds up, SIGTERM ends it",
				x.ready),
			run: func(r *rig) { r.watch(x.make(), x.ready, x.prepare) },
		})
	}
	return table
}

// readyLimit bounds the time until /readyz has the required state. It is longer than 10 s, because
// the source tail tries to list an unreadable folder for 10 s before its route fails. It is shorter
// than a minute, because after a minute any stall makes the process unready, whatever the fault is.
const readyLimit = 40 * time.Second

// watch runs a delivery as a daemon, compares /readyz and checks each status.
func (r *rig) watch(d delivery, ready bool, prepare func(r *rig)) {
	d.when, d.daemon, d.asNobody = always, true, true
	d.source = tailSource
	d.exits, d.keepsFailing, d.mute, d.later = []int{0, 1}, true, true, true
	admin := connectortest.FreeAddress(r.t)
	d.flags = []string{"--admin", admin}
	first := d.prepare
	d.prepare = func(r *rig) {
		if first != nil {
			first(r)
		}
		r.write("penstock.yaml", strings.ReplaceAll(r.read("penstock.yaml"), "https:http:",
			"https:"))
		if prepare != nil {
			prepare(r)
		}
	}
	d.during = func(r *rig, p *process) {
		want := map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[ready]
		var body string
		settled := until(readyLimit, func() bool {
			code, text := get("http://" + admin + "/readyz")
			body = text
			return code == want || !p.running()
		})
		if !p.running() { // its only route stopped
			if p.wait(hangLimit) != 1 || ready {
				r.errorf("the process ended: %s", tail(p.stderr.String(), 1000))
			}
			return
		}
		if !settled {
			r.errorf("/readyz never answered %d: %s", want, body)
		}
		for range 40 {
			r.checkStatus("http://" + admin + "/api/v1/status")
			if code, text := get("http://" + admin + "/readyz"); settled && code != want {
				r.errorf("/readyz answered %d after %d: %s", code, want, text)
				break
			}
			pause(25 * time.Millisecond)
		}
		p.signal(syscall.SIGTERM)
		if p.wait(hangLimit) < 0 {
			r.errorf("SIGTERM killed it")
		}
	}
	d.run(r)
}

func get(url string) (code int, body string) {
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// checkStatus requires that the counters of one status add up.
func (r *rig) checkStatus(url string) {
	code, body := get(url)
	if code != http.StatusOK {
		r.errorf("%s answered %d: %s", url, code, body)
		return
	}
	var status struct {
		Routes []routeSummary
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		r.errorf("the status is no JSON: %v", err)
		return
	}
	if len(status.Routes) == 0 {
		r.errorf("the status has no routes: %s", body)
	}
	for _, s := range status.Routes {
		if sum := s.Delivered + s.Dead + s.Dropped + s.InFlight + s.Waiting; sum != s.ReadRecords {
			r.errorf("the status does not add up: %+v", s)
		}
	}
}
