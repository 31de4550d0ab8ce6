package endtoend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// flakyServer receives batches of good, bad and hopeless lines. It fails a batch with a bad or
// hopeless line twice. At the third attempt, it accepts a bad line and refuses a hopeless one.
type flakyServer struct {
	mu    sync.Mutex // guards the fields below
	tries map[string][]time.Time
	taken map[string]int
}

func (s *flakyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := http.StatusOK
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "good") {
			continue
		}
		s.tries[line] = append(s.tries[line], time.Now())
		switch n := len(s.tries[line]); {
		case n < 3:
			status = http.StatusInternalServerError
		case strings.HasPrefix(line, "hopeless"):
			status = http.StatusBadRequest
		}
	}
	if status == http.StatusOK {
		for line := range strings.Lines(string(body)) {
			s.taken[strings.TrimSpace(line)]++
		}
	}
	w.WriteHeader(status)
}

// tried returns two numbers: the bad lines that were sent at least n times, and all attempts to
// send a bad line.
func (s *flakyServer) tried(n int) (lines, sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tries := range s.tries {
		if len(tries) >= n {
			lines++
		}
		sent += len(tries)
	}
	return lines, sent
}

// quiet returns a condition, which must be called at intervals of at least 5 ms. It is true when
// all bad lines were sent n times, and then none was sent during 100 calls. These calls take at
// least half a second, and longer on a busy machine. So the program has then saved the responses.
func (s *flakyServer) quiet(bad, n int) func() bool {
	calls, before := 0, 0
	return func() bool {
		lines, sent := s.tried(n)
		if calls++; sent != before {
			calls, before = 0, sent
		}
		return lines == bad && calls > 100
	}
}

// has reports whether the given number of good lines has arrived.
func (s *flakyServer) has(good int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[fmt.Sprintf("good %d", good-1)] > 0
}

// waitingLines returns bad lines, each followed by two good lines. Every twentieth bad line is
// hopeless: the server never accepts it.
func waitingLines(bad int) string {
	var log strings.Builder
	for i := range bad {
		kind := "bad"
		if i%20 == 0 {
			kind = "hopeless"
		}
		fmt.Fprintf(&log, "%s %d\ngood %d\ngood %d\n", kind, i, 2*i, 2*i+1)
	}
	return log.String()
}

// waitingBatches returns the number of batches that wait, the time for which they wait, and the
// maximum number of batches that are sent again per second. PENSTOCK_WAITING selects the values.
// The rate is low because a kill also repeats the attempts that were answered since the last save.
// While other tests run, a save can take 100 ms, and 10 or 100 attempts are answered in this time.
func waitingBatches() (bad int, wait time.Duration, rate int) {
	switch os.Getenv("PENSTOCK_WAITING") {
	case "short":
		return 300, 4 * time.Second, 100
	case "full":
		return 10_000, 20 * time.Second, 1000
	}
	return 100, 4 * time.Second, 100
}

// TestKillWaiting kills the program while many batches wait for a retry: once after each batch has
// failed once, and once in the middle of the second attempts. No batch may be lost or sent too
// early, and the attempt counts must continue.
func TestKillWaiting(t *testing.T) {
	t.Parallel() // it mostly waits
	bad, wait, rate := waitingBatches()
	server := &flakyServer{tries: map[string][]time.Time{}, taken: map[string]int{}}
	http := httptest.NewServer(server)
	defer http.Close()
	dir := t.TempDir()
	config := waitingConfig(t, dir, http.URL, wait, rate)
	if err := os.Mkdir(filepath.Join(dir, "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	good, files := 0, 0
	put := func(text string) {
		files++
		name := filepath.Join(dir, "in", fmt.Sprintf("%06d", files))
		if err := os.WriteFile(name+".tmp", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".tmp", name+".log"); err != nil {
			t.Fatal(err)
		}
	}
	put(waitingLines(bad))
	good += 2 * bad
	// New good lines keep arriving. Their delivery shows the program that the other batches fail
	// because of their data, and not because of the worker.
	k := &killed{t: t, config: config, feed: func() {
		put(fmt.Sprintf("good %d\n", good))
		good++
	}}
	defer k.kill()
	limit := time.Now().Add(time.Minute + 10*wait)
	until := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if time.Now().After(limit) {
				once, _ := server.tried(1)
				twice, _ := server.tried(2)
				third, _ := server.tried(3)
				t.Fatalf("%s: %d, %d and %d of %d bad lines were sent once, twice, three times\n%s",
					what, once, twice, third, bad, k.errs.String())
			}
			k.step()
		}
	}
	k.start()
	until("first attempts", server.quiet(bad, 1))
	if n, _ := server.tried(2); n > bad/2 {
		t.Logf("%d of %d had been sent twice before all had been sent: the machine is slow", n, bad)
	}
	k.kill()
	k.start()
	until("second attempts", func() bool { n, _ := server.tried(2); return n > bad/2 })
	k.kill()
	k.start()
	until("third attempts", server.quiet(bad, 3))
	k.feed = func() {}
	until("the end", func() bool { return server.has(good) })
	k.drain()
	server.check(t, wait, k.most, good)
	server.checkLetters(t, filepath.Join(dir, "state", "dead", "kill.main.ndjson"),
		(bad+19)/20, k.most)
}

// check checks that every line has arrived, and that none has arrived too early. inFlight bounds
// the batches that were in flight at a kill: the program may not have recorded the answers to them.
func (s *flakyServer) check(t *testing.T, wait time.Duration, inFlight, good int) {
	t.Helper()
	early, repeated := 0, 0
	for line, at := range s.tries {
		if len(at) > 3 {
			repeated++
		}
		for i := 1; i < len(at); i++ {
			gap := at[i].Sub(at[i-1])
			switch {
			case gap >= wait:
			case i == 1: // nothing was in flight at the first kill
				t.Errorf("%s: the second attempt came %v after the first, want at least %v", line,
					gap, wait)
			default:
				early++
				t.Logf("%s: attempt %d came %v after the one before, want at least %v", line, i+1,
					gap, wait)
			}
		}
		if strings.HasPrefix(line, "bad") && s.taken[line] == 0 {
			t.Errorf("%q is lost", line)
		}
	}
	for i := range good {
		if s.taken[fmt.Sprintf("good %d", i)] == 0 {
			t.Errorf("good %d is lost", i)
		}
	}
	if early > inFlight || repeated > inFlight {
		t.Errorf("%d attempts came early, %d lines were sent once more; "+
			"at most %d were in flight at the kills", early, repeated, inFlight)
	}
}

// checkLetters checks that the attempts in the dead letters agree with those the server counted.
func (s *flakyServer) checkLetters(t *testing.T, path string, want, inFlight int) {
	t.Helper()
	letters, uncounted := map[string]bool{}, 0
	for line := range bytes.Lines(read(t, path)) {
		var letter struct {
			Record   string
			Attempts int
		}
		if err := json.Unmarshal(line, &letter); err != nil {
			t.Fatal(err)
		}
		letters[letter.Record] = true
		tries := len(s.tries[letter.Record])
		if letter.Attempts != tries {
			uncounted++
		}
		if letter.Attempts < 2 || letter.Attempts > tries {
			t.Errorf("%q became a dead letter after %d attempts, and was sent %d times",
				letter.Record, letter.Attempts, tries)
		}
	}
	if uncounted > inFlight {
		t.Errorf("of %d dead letters an attempt was not counted; "+
			"at most %d were in flight at the kills", uncounted, inFlight)
	}
	if len(letters) != want {
		t.Errorf("%d lines are dead letters, want %d", len(letters), want)
	}
}

func waitingConfig(t *testing.T, dir, url string, wait time.Duration, rate int) string {
	t.Helper()
	return write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  kill:
    source: { spool_dir: { path: ./in, include: ["*.log"], finished: keep, quiet_period: 1ms } }
    sink: { http: { endpoints: [%q], body: raw } }
    batch: { records: 1, linger: 0s }
    retry: { backoff: fixed, base: %v }
    flow: { redeliver: 0.1, redeliver_rate: %d, max: %d }
    guard: { off: true }
`, url, wait, rate, mostInFlight))
}

// mostInFlight is the largest window of the program that is killed.
const mostInFlight = 32

// killed is a program that is killed and started again.
type killed struct {
	t      *testing.T
	config string
	feed   func()
	cmd    *exec.Cmd
	ended  chan error
	errs   bytes.Buffer
	most   int // bound of the batches in flight at the kills
}

func (k *killed) start() {
	k.t.Helper()
	bin, err := program()
	if err != nil {
		k.t.Fatal(err)
	}
	k.cmd = exec.Command(bin, "run", k.config)
	k.cmd.Stderr = &k.errs
	if err := k.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.ended = make(chan error, 1)
	go func() { k.ended <- k.cmd.Wait() }()
}

// step lets the program run for a moment.
func (k *killed) step() {
	k.t.Helper()
	k.feed()
	select {
	case err := <-k.ended:
		k.cmd = nil
		k.t.Fatalf("the program ended by itself: %v\n%s", err, k.errs.String())
	case <-time.After(5 * time.Millisecond):
	}
}

func (k *killed) kill() {
	if k.cmd == nil {
		return
	}
	k.most += mostInFlight
	_ = k.cmd.Process.Kill()
	<-k.ended
	k.cmd = nil
}

// drain ends the program as an operator does.
func (k *killed) drain() {
	k.t.Helper()
	if err := k.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		k.t.Fatal(err)
	}
	if err := <-k.ended; err != nil {
		k.t.Errorf("drain: %v\n%s", err, k.errs.String())
	}
	k.cmd = nil
}
