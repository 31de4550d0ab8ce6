package demo

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestReceiver checks that a receiver counts answered requests, but not interrupted ones. After a
// restart it has the same counts.
func TestReceiver(t *testing.T) {
	tally := NewTally(4)
	r := NewReceiver(200*time.Millisecond, tally)
	post := func(key, body string) error {
		req, err := http.NewRequest(http.MethodPost, r.URL(), strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", key)
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	if err := r.Revive(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := r.URL()
	ended := make(chan error, 1)
	go func() { ended <- post("c", "2 c\n") }()
	for len(r.slots) == 0 { // until it is served
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("a receiver that was killed has answered")
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.Revive(t.Context()); err != nil || r.URL() != url {
		t.Fatalf("revived at %s, %v", r.URL(), err)
	}
	defer r.Kill()
	for range 2 { // the second time it is known
		if err := post("a", "0 a\n1 b\n1 b\nx\n9 z\n3 d\n"); err != nil {
			t.Fatal(err)
		}
	}
	lost, repeated := tally.Count()
	if again := tally.Recognised(); lost != 1 || repeated != 1 || again != 1 {
		t.Errorf("lost %d, repeated %d, %d requests recognised; want 1, 1 and 1", lost, repeated, again)
	}
}
