package endtoend

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// pickyServer refuses records that contain "bad" until it is healed. It counts the accepted
// records.
type pickyServer struct {
	*httptest.Server

	mu     sync.Mutex // guards the fields below
	mended bool
	taken  map[string]int
	reach  func(taken int) // called with the number of records accepted since the healing
	since  int
}

func newPickyServer(t *testing.T) *pickyServer {
	s := &pickyServer{taken: make(map[string]int)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.mended && strings.Contains(string(body), "bad") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, "no such \x1b[31mfield")
			return
		}
		for line := range strings.Lines(string(body)) {
			s.taken[strings.TrimSuffix(line, "\n")]++
			if s.mended {
				s.since++
			}
		}
		if s.reach != nil {
			s.reach(s.since)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// deadLast is the last line of `penstock dead ... --json`.
type deadLast struct {
	OK                         bool
	Error                      string
	Letters, Replayed, Skipped int64
	Pipelines                  []routeResult
}

// deadLetters runs `penstock dead` and returns the lines of JSON that it prints. The last line has
// another form, and is returned separately.
func deadLetters(t *testing.T, args ...string) (lines []string, last deadLast) {
	t.Helper()
	cmd := exec.Command(programOf(t), append([]string{"dead"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("dead %v: %v\n%s%s", args, err, out, stderr.String())
	}
	lines = strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || !last.OK {
		t.Fatalf("dead %v ends with %s: %v", args, lines[len(lines)-1], err)
	}
	return lines[:len(lines)-1], last
}

// TestReplay checks that a replay delivers each dead letter once. After a kill, at most
// checkpoint.replay is repeated. With a filter, only the selected letters are replayed. A second
// replay sends none. The route's own source must continue as before.
func TestReplay(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	server := newPickyServer(t)
	dir := t.TempDir()
	var text strings.Builder
	const records, every = 8000, 20
	for i := range records {
		kind := "good"
		if i%every == 0 {
			kind = "bad"
		}
		fmt.Fprintf(&text, "%s record %d\n", kind, i)
	}
	write(t, filepath.Join(dir, "spool", "a.log"), text.String())
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
pipelines:
  picky:
    source: { spool_dir: { path: ./spool, quiet_period: 1ms } }
    sink: { http: { endpoints: [%q], body: raw } }
    batch: { bytes: 512B }
    checkpoint: { replay: 2KiB, sync: 20ms }
`, server.URL))
	const bad = records / every
	if r := once(t, config).Pipelines[0]; r.Dead != bad || r.Delivered != records-bad {
		t.Fatalf("%+v", r)
	}
	listed, last := deadLetters(t, "list", "--json", config)
	if len(listed) != bad || last.Letters != bad || last.Replayed != 0 || last.Skipped != 0 {
		t.Fatalf("%d letters listed, %+v", len(listed), last)
	}
	shown, err := exec.Command(programOf(t), "dead", "show", config).Output()
	if err != nil || strings.Contains(string(shown), "\x1b") ||
		!strings.Contains(string(shown), `no such`) {
		t.Errorf("show: %v, %.300q", err, shown)
	}
	if _, last := deadLetters(t, "replay", "--json", "--reason", "nobody said so",
		config); last.Letters != 0 || last.Replayed != 0 {
		t.Errorf("a filter that means none: %+v", last)
	}
	server.mu.Lock()
	server.mended = true
	server.mu.Unlock()
	killed := 0
	for range 5 {
		killed += killReplay(t, server, config, 1+random.IntN(bad/4))
	}
	_, last = deadLetters(t, "replay", "--json", config)
	if last.Letters != bad || last.Replayed != bad {
		t.Errorf("the last replay: %+v", last)
	}
	server.exact(t, records, every, killed*2048)
	before := server.since
	if _, last := deadLetters(t, "replay", "--json", config); len(last.Pipelines) != 0 ||
		server.since != before {
		t.Errorf("a second replay sent %d letters: %+v", server.since-before, last)
	}
	if lines, last := deadLetters(t, "list", "--json", config); len(lines) != 0 ||
		last.Replayed != bad {
		t.Errorf("after it %d letters are listed, %+v", len(lines), last)
	}
	write(t, filepath.Join(dir, "spool", "b.log"), "good news\n")
	if r := once(t, config).Pipelines[0]; r.ReadRecords != 1 || r.Delivered != 1 {
		t.Errorf("the route's own source after the replays: %+v", r)
	}
}

// killReplay kills a replay after the given number of letters. It returns 0 if the replay ended
// before.
func killReplay(t *testing.T, server *pickyServer, config string, after int) int {
	t.Helper()
	cmd := exec.Command(programOf(t), "dead", "replay", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var struck sync.Once
	server.mu.Lock()
	from := server.since
	server.reach = func(n int) {
		if n-from >= after {
			struck.Do(func() { _ = cmd.Process.Kill() })
		}
	}
	server.mu.Unlock()
	err := cmd.Wait()
	server.mu.Lock()
	defer server.mu.Unlock()
	server.reach = nil
	if err != nil {
		return 1
	}
	return 0
}

// exact checks that every record has arrived, and that repeated bytes are within the bound.
func (s *pickyServer) exact(t *testing.T, records, every, bound int) {
	t.Helper()
	repeated := 0
	for i := range records {
		kind := "good"
		if i%every == 0 {
			kind = "bad"
		}
		line := fmt.Sprintf("%s record %d", kind, i)
		n := s.taken[line]
		if n == 0 {
			t.Fatalf("%q was lost", line)
		}
		repeated += (n - 1) * (len(line) + 1)
	}
	if repeated > bound {
		t.Errorf("%d bytes were repeated, more than %d", repeated, bound)
	}
	t.Logf("%d bytes repeated, at most %d", repeated, bound)
}
