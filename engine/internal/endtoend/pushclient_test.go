package endtoend

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// pushWorkers is the number of concurrent requests of a client.
const pushWorkers = 6

// pushRecords is the number of records of a request.
const pushRecords = 5

// TestPushClient is the client process of TestKillPush. Each of its workers sends requests one
// after another. It repeats a request with its Idempotency-Key until the request is acknowledged,
// and then records the request. A restarted client resumes after the recorded requests.
func TestPushClient(t *testing.T) {
	url, notes := os.Getenv("PENSTOCK_PUSH_URL"), os.Getenv("PENSTOCK_PUSH_NOTES")
	if url == "" {
		t.Skip("started by TestKillPush")
	}
	done := make(chan struct{}) // closed with standard input
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	next := acknowledged(t, notes)
	f, err := os.OpenFile(notes, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var mu sync.Mutex
	var workers sync.WaitGroup
	for w := range pushWorkers {
		workers.Go(func() {
			for n := next[w]; ; n++ {
				for !pushed(url, w, n) {
					<-time.After(2 * time.Millisecond) // the engine is down or full
				}
				mu.Lock()
				_, err := fmt.Fprintf(f, "%d %d\n", w, n)
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	workers.Wait()
}

// pushed sends a request and reports whether it was acknowledged.
func pushed(url string, w, n int) bool {
	var body strings.Builder
	for i := range pushRecords {
		fmt.Fprintf(&body, "%d-%d-%d\n", w, n, i)
	}
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body.String()))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Idempotency-Key", fmt.Sprintf("%d-%d", w, n))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// acknowledged returns the number of acknowledged requests of each worker.
func acknowledged(t *testing.T, notes string) (next [pushWorkers]int) {
	t.Helper()
	text, err := os.ReadFile(notes)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	lines := bufio.NewScanner(bytes.NewReader(whole))
	for lines.Scan() {
		first, second, _ := strings.Cut(lines.Text(), " ")
		w, err := strconv.Atoi(first)
		n, wrong := strconv.Atoi(second)
		if err != nil || wrong != nil {
			t.Fatalf("note %q", lines.Text())
		}
		next[w] = n + 1
	}
	return next
}

// pushProcess is a running client.
type pushProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startClient(t *testing.T, dir, url string) *pushProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestPushClient$")
	cmd.Env = append(os.Environ(), "PENSTOCK_PUSH_URL="+url,
		"PENSTOCK_PUSH_NOTES="+filepath.Join(dir, "notes"))
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, except after a failure
	return &pushProcess{cmd, stdin}
}

// kill ends the client with SIGKILL.
func (p *pushProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// finish waits until the client's pending requests are acknowledged.
func (p *pushProcess) finish(t *testing.T) {
	t.Helper()
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the client ended with %v", err)
	}
}
