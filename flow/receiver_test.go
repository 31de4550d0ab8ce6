package flow_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/flow"
	"github.com/penstock-io/penstock/flow/control"
	"github.com/penstock-io/penstock/flow/window"
)

func TestGrantIsReadAsWritten(t *testing.T) {
	want := flow.Report{
		Epoch: 7, Credit: 1 << 40, Taken: 12, QueueLen: 3, Slots: 4,
		QueueWait: 1500 * time.Microsecond, Service: 20 * time.Millisecond,
	}
	got, ok := flow.ParseGrant(flow.Grant{Report: want}.String())
	if !ok || got != want {
		t.Errorf("read %+v, %v; want %+v", got, ok, want)
	}
	for _, c := range []struct {
		text string
		want flow.Report
		ok   bool
	}{
		{"", flow.Report{}, false},
		{"credit=5", flow.Report{Credit: 5}, false},
		{"epoch=1; credit=5; unit=batches", flow.Report{Epoch: 1, Credit: 5, Batches: true}, true},
		{"epoch=1; credit=5; unit=records", flow.Report{Epoch: 1, Credit: 5}, true},
		{" epoch=1 ;credit=5;; color=blue; taken=-3; queue=x ", flow.Report{Epoch: 1, Credit: 5},
			true},
		{"epoch=1; queue=99999999999999; wait=9223372036854775807",
			flow.Report{Epoch: 1, QueueLen: 1<<31 - 1, QueueWait: time.Hour}, true},
	} {
		if got, ok := flow.ParseGrant(c.text); ok != c.ok || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v, %v", c.text, got, ok, c.want, c.ok)
		}
	}
}

func FuzzParseGrant(f *testing.F) {
	f.Add("epoch=1; credit=2; taken=3; queue=4; slots=5; wait=6; service=7")
	f.Add("epoch=;=;;;=1")
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := flow.ParseGrant(text)
		if !ok {
			return
		}
		again, ok := flow.ParseGrant(flow.Grant{Report: r}.String())
		if !ok || again != r {
			t.Errorf("%q is %+v, and written and read again %+v", text, r, again)
		}
	})
}

// poster is a worker that delivers to an HTTP receiver and reports its grants.
type poster struct {
	client   *http.Client
	url      string
	inFlight atomic.Int64
	most     atomic.Int64
	granted  atomic.Int64
}

func (p *poster) Deliver(ctx context.Context, a flow.Attempt[string]) (flow.Report, error) {
	n := p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	for old := p.most.Load(); n > old && !p.most.CompareAndSwap(old, n); old = p.most.Load() {
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, strings.NewReader(a.Value))
	if err != nil {
		return flow.Report{}, err
	}
	req.Header.Set(flow.SenderHeader, "test; network=100")
	res, err := p.client.Do(req)
	if err != nil {
		return flow.Report{}, err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return flow.Report{}, err
	}
	r, ok := flow.ParseGrant(res.Header.Get(flow.CreditHeader))
	if ok {
		p.granted.Add(1)
	}
	return r, nil
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) Next(context.Context) (flow.Item[string], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return flow.Item[string]{}, io.EOF
	}
	c.n--
	return flow.Item[string]{Value: "x"}, nil
}

// deliver sends n batches to a receiver. It returns the worker with its observations, the number of
// settled batches, and the sender's status.
func deliver(t *testing.T, client *http.Client, url string, n int) (*poster, int, control.Status) {
	t.Helper()
	p := &poster{client: client, url: url}
	settled := 0
	s, err := flow.New(flow.Options[string]{
		Lanes:   []flow.Lane[string]{{Name: "a", Worker: p}},
		Control: control.Config{Window: window.Credit{}},
		Settled: func(flow.Item[string], flow.Settlement) { settled++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context(), &counter{n: n}); err != nil {
		t.Fatal(err)
	}
	status, _ := s.Status()
	return p, settled, status
}

// direct is a transport that calls a handler directly, and simulates a network that takes 100 us.
type direct struct{ http.Handler }

func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(100 * time.Microsecond)
	w := httptest.NewRecorder()
	d.ServeHTTP(w, req)
	return w.Result(), nil
}

func TestReceiverHoldsItsSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &flow.Receiver{Slots: 4}
		client := &http.Client{
			Transport: direct{
				r.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					time.Sleep(2 * time.Millisecond)
					w.WriteHeader(http.StatusAccepted)
				}))}}
		p, settled, status := deliver(t, client, "http://receiver", 600)
		if settled != 600 || p.granted.Load() != 600 {
			t.Errorf("%d of 600 settled, %d with a grant", settled, p.granted.Load())
		}
		if most := p.most.Load(); most < 4 || most > 40 {
			t.Errorf("%d in flight at most; want the 4 slots busy and few waiting: %+v", most,
				status.Lanes[0])
		}
	})
}

// TestReceiverExamples runs the unchanged programs of examples/.
func TestReceiverExamples(t *testing.T) {
	for name, command := range map[string][]string{
		"go": {"go", "run", "../examples/receiver-go", "127.0.0.1:0"},
		"python": {"python3", filepath.Join("..", "examples", "receiver-python", "receiver.py"),
			"127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(command[0])
			if err != nil {
				t.Skipf("%s is not installed here", command[0])
			}
			bin := append([]string{path}, command[1:]...)
			if name == "go" { // killing go run would not kill the program that it started
				out := filepath.Join(t.TempDir(), "receiver")
				build := exec.Command(path, "build", "-o", out, command[2])
				build.Env = append(os.Environ(), "CGO_ENABLED=0") // unlike make race
				if text, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				bin = []string{out, command[3]}
			}
			cmd := exec.Command(bin[0], bin[1:]...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				cmd.Process.Kill()
				cmd.Wait()
			}()
			address, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("it says nothing of its address: %v", err)
			}
			p, settled, status := deliver(t, http.DefaultClient,
				"http://"+strings.TrimSpace(address), 200)
			if settled != 200 || p.granted.Load() != 200 {
				t.Errorf("%d of 200 settled, %d with a grant", settled, p.granted.Load())
			}
			if most := p.most.Load(); most < 4 || most > 40 {
				t.Errorf("%d in flight at most: %+v", most, status.Lanes[0])
			}
		})
	}
}
