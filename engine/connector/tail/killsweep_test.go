package tail_test

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// killSync is how often the checkpoint is saved.
const killSync = 50 * time.Millisecond

// subject is one case of a sweep, with its writer and the lines that its receivers got.
type subject struct {
	rotation
	title string
	w     *writer
	db    *sql.DB
	// marker is a separate file. When a line of it arrives, the program has listed all files after
	// the line was written.
	marker string

	mu          sync.Mutex      // guards the fields below
	sent        map[string]int  // lines sent to the server
	markersSent map[string]bool // lines of the marker file that were sent to the server
	news        int             // requests so far

	late bool // it lacked lines for as long as settle waits
}

// sweep is one process that follows the files of many cases.
type sweep struct {
	t       *testing.T
	dir     string
	bin     string
	admin   string
	server  *httptest.Server
	s       schedule
	cases   []*subject
	sync    time.Duration
	markers int       // lines in each marker file
	cmd     *exec.Cmd // nil: it is down
	ended   chan error
	log     *os.File
}

func newSweep(t *testing.T, bin string, s schedule, cases []rotation) *sweep {
	dir, err := os.MkdirTemp("", "penstock-rotation-")
	if err != nil {
		t.Fatal(err)
	}
	v := &sweep{t: t, dir: dir, bin: bin, s: s, sync: killSync}
	t.Cleanup(v.close)
	if v.log, err = os.Create(filepath.Join(dir, "penstock.log")); err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]*subject)
	v.server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		byName[strings.Trim(r.URL.Path, "/")].receive(r)
	}))
	for i, c := range cases {
		sub := &subject{
			rotation: c, title: c.name, sent: make(map[string]int),
			markersSent: make(map[string]bool),
		}
		sub.name = fmt.Sprintf("c%02d", i)
		in := filepath.Join(dir, sub.name, "in")
		sub.marker = filepath.Join(dir, sub.name, "marker", "marker.log")
		for _, folder := range []string{in, filepath.Dir(sub.marker)} {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		sub.w = newWriter(t, in, time.Time{})
		sub.w.wide = c.wide
		if sub.db, err = sql.Open("sqlite",
			"file:"+(&url.URL{Path: filepath.Join(dir, sub.name, "out.db")}).EscapedPath()+
				"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"); err == nil {
			err = sub.db.Ping()
		}
		if err != nil {
			t.Fatal(err)
		}
		byName[sub.name] = sub
		v.cases = append(v.cases, sub)
	}
	v.admin = connectortest.FreeAddress(t)
	return v
}

// close ends the sweep. It keeps the folder if the test has failed.
func (v *sweep) close() {
	v.kill()
	if v.server != nil {
		v.server.Close()
	}
	for _, c := range v.cases {
		c.w.close()
		_ = c.db.Close()
	}
	if v.log != nil {
		_ = v.log.Close()
	}
	if v.t.Failed() {
		v.t.Logf("killed %v: files, tables and the program's log are kept in %s", v.s, v.dir)
		return
	}
	_ = os.RemoveAll(v.dir)
}

// start starts a process. If ready is set, it waits until the process responds.
func (v *sweep) start(ready bool) {
	v.t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config, "state: ./state\nadmin: %s\npipelines:\n", v.admin)
	for _, c := range v.cases {
		config.WriteString(c.pipeline(v.server.URL, v.sync))
	}
	path := filepath.Join(v.dir, "penstock.yaml")
	if err := os.WriteFile(path, []byte(config.String()), 0o600); err != nil {
		v.t.Fatal(err)
	}
	v.cmd = exec.Command(v.bin, "run", path)
	v.cmd.Stderr, v.cmd.Stdout = v.log, v.log
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	ended, cmd := make(chan error, 1), v.cmd
	go func() { ended <- cmd.Wait() }()
	v.ended = ended
	for end := time.Now().Add(time.Minute); ready; v.pause(10 * time.Millisecond) {
		if _, ok := v.unsaved(); ok {
			v.pause(lookTwice)
			return
		}
		if time.Now().After(end) {
			v.t.Fatal("the program did not get ready within a minute")
		}
	}
}

// kill ends the process with SIGKILL.
func (v *sweep) kill() {
	if v.cmd == nil {
		return
	}
	_ = v.cmd.Process.Kill()
	<-v.ended
	v.cmd = nil
}

// pause waits for d. It fails the test if the process ends meanwhile.
func (v *sweep) pause(d time.Duration) {
	v.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case err := <-v.ended:
		v.cmd = nil
		v.t.Fatalf("the program ended by itself: %v", err)
	}
}

// unsaved returns 0 if a kill would repeat nothing now. Otherwise it returns the sum of the
// in-flight and waiting records and of the bytes that a kill would repeat. ok is false if the
// program does not answer, or not all of its routes are running yet.
func (v *sweep) unsaved() (bytes int64, ok bool) {
	res, err := http.Get("http://" + v.admin + "/api/v1/status")
	if err != nil {
		return 0, false
	}
	defer res.Body.Close()
	var status struct {
		Routes []struct {
			Health      string
			InFlight    int64 `json:"in_flight"`
			Waiting     int64
			ReplayBytes int64 `json:"replay_bytes"`
		}
	}
	if json.NewDecoder(res.Body).Decode(&status) != nil || len(status.Routes) != 2*len(v.cases) {
		return 0, false
	}
	for _, r := range status.Routes {
		if r.Health != "running" {
			return 0, false
		}
		bytes += r.InFlight + r.Waiting + r.ReplayBytes
	}
	return bytes, true
}

// writeMarker writes a line to the marker file of every case. When it is delivered, the program has
// listed the files after all earlier steps. So however slow the machine is, the program has seen
// the effect of each step, even of a step that adds no lines.
func (v *sweep) writeMarker() string {
	v.t.Helper()
	v.markers++
	line := fmt.Sprintf("%s%d", markerPrefix, v.markers)
	for _, c := range v.cases {
		f, err := os.OpenFile(c.marker, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			v.t.Fatal(err)
		}
		if _, err = f.WriteString(line + "\n"); err == nil {
			err = f.Close()
		}
		if err != nil {
			v.t.Fatal(err)
		}
	}
	return line
}

// markerPrefix is the prefix of the lines of marker files. No other line has it.
const markerPrefix = "marker "

// awaitDelivery runs the process until the checkpoint is saved, and both receivers of every case
// have a new marker line and all lines written so far. It must not return earlier, because the next
// step may destroy lines or files that the process still needs.
//
// There are two exceptions. Some lines of a case with waits arrive only after killGoneWait or
// killCopyWait. awaitDelivery stops waiting for these lines if no line arrives for the time idle.
// If any other case lacks lines after the time patience, awaitDelivery does not wait for that case
// again, and its comparison reports the lines.
func (v *sweep) awaitDelivery(idle time.Duration) {
	v.t.Helper()
	const patience = time.Minute
	marker, begun := v.writeMarker(), time.Now()
	last, most := begun, -1
	for {
		marked, all, sure, have := true, true, true, 0
		for _, c := range v.cases {
			n, seen, complete := c.progress(marker)
			have += n
			marked, all = marked && seen, all && complete
			sure = sure && (complete || c.waits || c.late)
			c.late = c.late || !complete && !c.waits && time.Since(begun) > patience
		}
		if have != most || !marked {
			last, most = time.Now(), have
		}
		rest, ok := v.unsaved()
		saved := ok && (rest == 0 || v.sync > time.Minute)
		if time.Since(begun) > patience && !(marked && saved) {
			v.t.Fatal("the program did not list its files and save its progress within a minute")
		}
		if marked && sure && saved && (all || time.Since(last) > idle) {
			v.pause(lookTwice)
			return
		}
		v.pause(20 * time.Millisecond)
	}
}

// receive is the HTTP server of a case.
func (c *subject) receive(r *http.Request) {
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	var texts []string
	for lines.Scan() {
		var record struct{ Message string }
		if err := json.Unmarshal(lines.Bytes(), &record); err != nil {
			c.w.t.Errorf("a body with %.80q: %v", lines.Text(), err)
		}
		texts = append(texts, record.Message)
	}
	if lines.Err() != nil {
		return // cut off by a kill: nothing was received
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.news++
	for _, s := range texts {
		if strings.HasPrefix(s, markerPrefix) {
			c.markersSent[s] = true
		} else {
			c.sent[s]++
		}
	}
}

// progress reports whether both receivers have the given line of the marker file, and whether they
// have all other lines. n increases whenever something arrives.
func (c *subject) progress(marker string) (n int, seen, complete bool) {
	missing := c.missing()
	c.mu.Lock()
	n, seen = c.news, c.markersSent[marker]
	c.mu.Unlock()
	rows, own, marks := 0, 0, 0
	_ = c.db.QueryRow("SELECT count(*), coalesce(sum(message LIKE ?), 0), coalesce(sum(message = "+
		"?), 0) FROM lines", markerPrefix+"%", marker).
		Scan(&rows, &own, &marks) // there is no table before the first record
	return n + rows, seen && marks > 0, len(missing) == 0 && rows-own >= len(c.w.ledger)
}

// missing returns the lines of the ledger that were not sent to the server.
func (c *subject) missing() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := make(map[string]int)
	for _, line := range c.w.ledger {
		if want[line]++; want[line] > c.sent[line] {
			lines = append(lines, line)
		}
	}
	return lines
}

// rows returns the lines of the table.
func (c *subject) rows(t *testing.T) (lines []string) {
	t.Helper()
	rows, err := c.db.Query("SELECT message FROM lines WHERE message NOT LIKE ?", markerPrefix+"%")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
