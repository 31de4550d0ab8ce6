package receiver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Receiver is a receiver that runs in another process.
type Receiver struct {
	URL string
	cmd *exec.Cmd
	in  io.Closer
}

// Start starts a receiver.
func Start(b Behaviour) (*Receiver, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "receive", "-records", fmt.Sprint(b.Records), "-delay",
		b.Delay.String(),
		"-slots", fmt.Sprint(b.Slots), "-phase", b.Phase.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r := &Receiver{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.Stop()
		return nil, fmt.Errorf("start a receiver: %w", err)
	}
	r.URL = strings.TrimSpace(line)
	return r, nil
}

// Stop ends the receiver.
func (r *Receiver) Stop() {
	r.in.Close()
	r.cmd.Wait()
}

// Stats returns the receiver's counts.
func (r *Receiver) Stats() (s Stats, err error) {
	res, err := http.Get(r.URL + "/stats")
	if err != nil {
		return s, err
	}
	defer res.Body.Close()
	return s, json.NewDecoder(res.Body).Decode(&s)
}

// pollEvery is the interval at which Await asks for the counts.
const pollEvery = 50 * time.Millisecond

// Await waits until the receiver has n different records, and returns the counts of the receiver.
// It returns earlier if no new record has arrived for as long as patience, or when gone is closed.
func (r *Receiver) Await(n int64, patience time.Duration, gone <-chan struct{}) (Stats, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	had, since := int64(-1), time.Now()
	for {
		s, err := r.Stats()
		if err != nil || s.Unique >= n {
			return s, err
		}
		if s.Unique != had {
			had, since = s.Unique, time.Now()
		}
		if time.Since(since) > patience {
			return s, nil
		}
		select {
		case <-gone:
			return r.Stats()
		case <-tick.C:
		}
	}
}

// Endpoints returns n URLs of the receiver. Each URL is a worker for penstock.
func (r *Receiver) Endpoints(n int) (urls []string) {
	for i := range n {
		urls = append(urls, fmt.Sprintf("%s/%d", r.URL, i))
	}
	return urls
}
