package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/inbox"
)

// trusting accepts every request; the id is the header Id.
type trusting struct{}

func (trusting) Verify(h http.Header, body []byte, now time.Time) (inbox.Message, error) {
	return inbox.Message{ID: h.Get("Id"), Sent: now, Header: h, Body: body}, nil
}

func newInbox(t *testing.T, change func(ctx context.Context, m inbox.Message) error,
	set func(o *inbox.Options[struct{}]),
) *inbox.Inbox[struct{}] {
	t.Helper()
	o := inbox.Options[struct{}]{
		Verifier: trusting{}, Store: new(inbox.Memory),
		Change: func(ctx context.Context, _ struct{}, m inbox.Message) error {
			return change(ctx, m)
		},
	}
	if set != nil {
		set(&o)
	}
	i, err := inbox.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func post(i http.Handler, id, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Id", id)
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w
}

// TestHandler checks the response to the sender and the number of changes.
func TestHandler(t *testing.T) {
	changes := 0
	var failures []error
	i := newInbox(t, func(_ context.Context, m inbox.Message) error {
		changes++
		switch string(m.Body) {
		case "fail":
			return errors.New("the database at 10.0.0.7 is down")
		case "reject":
			return fmt.Errorf("no such order: %w", inbox.ErrRejected)
		}
		return nil
	}, func(o *inbox.Options[struct{}]) {
		o.MaxBody = 10
		o.OnError = func(_ *http.Request, err error) { failures = append(failures, err) }
	})
	for n, c := range []struct {
		id, body string
		status   int
		changes  int // so far
	}{
		{"a", "x", 200, 1}, {"a", "x", 200, 1}, {"b", "x", 200, 2}, {"a", "y", 422, 2},
		{"", "x", 422, 2}, {strings.Repeat("k", 257), "x", 422, 2}, {"z\x00", "x", 422, 2},
		{"c", "fail", 500, 3}, {"c", "fail", 500, 4}, {"c", "fine", 200, 5},
		{"d", "reject", 422, 6}, {"e", "much too long", 413, 6},
	} {
		w := post(i, c.id, c.body)
		if w.Code != c.status || changes != c.changes ||
			(w.Body.String() == "success") != (c.status == 200) {
			t.Errorf("%d: %q %q is answered %d %q after %d changes, want %d after %d",
				n, c.id, c.body, w.Code, w.Body, changes, c.status, c.changes)
		}
		if strings.Contains(w.Body.String(), "10.0.0.7") {
			t.Error("the response shows an error of the database")
		}
	}
	if len(failures) != 8 {
		t.Errorf("%d errors were reported, want 8: %v", len(failures), failures)
	}
	w := httptest.NewRecorder()
	i.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != 405 || w.Header().Get("Allow") == "" {
		t.Errorf("GET is answered %d", w.Code)
	}
}

func TestUnsigned(t *testing.T) {
	i := newInbox(t, func(context.Context, inbox.Message) error {
		return errors.New("it was changed")
	},
		func(o *inbox.Options[struct{}]) {
			o.Verifier = &inbox.HMAC{Header: "X", Secrets: []string{"k"}}
		})
	if w := post(i, "a", "x"); w.Code != 401 {
		t.Errorf("answered %d, want 401", w.Code)
	}
}

// TestSame checks that a repetition with another counter in its body is still a repetition.
func TestSame(t *testing.T) {
	changes := 0
	i := newInbox(t, func(context.Context, inbox.Message) error {
		changes++
		return nil
	}, func(o *inbox.Options[struct{}]) {
		o.Key = func(m inbox.Message) (string, error) { return string(m.Body[:1]), nil }
		o.Same = func(m inbox.Message) []byte { return m.Body[:2] }
	})
	for _, c := range []struct {
		body   string
		status int
	}{{"ap1", 200}, {"ap2", 200}, {"ar1", 422}, {"bp1", 200}} {
		if w := post(i, "", c.body); w.Code != c.status {
			t.Errorf("%s is answered %d, want %d", c.body, w.Code, c.status)
		}
	}
	if changes != 2 {
		t.Errorf("%d changes, want 2", changes)
	}
}

// TestAtOnce checks that only one of many concurrent deliveries of one notification is applied. If
// the first one fails, another one is applied.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began, done atomic.Int64
		i := newInbox(t, func(context.Context, inbox.Message) error {
			n := began.Add(1)
			time.Sleep(time.Second)
			if n == 1 {
				return errors.New("deadlock")
			}
			done.Add(1)
			return nil
		}, nil)
		var wg sync.WaitGroup
		var ok, failed atomic.Int64
		for range 50 {
			wg.Go(func() {
				switch w := post(i, "a", "x"); w.Code {
				case 200:
					ok.Add(1)
				case 500:
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		if done.Load() != 1 || began.Load() != 2 || ok.Load() != 49 || failed.Load() != 1 {
			t.Errorf("%d changes of %d, %d answered 200 and %d 500; want 1 of 2, 49 and 1",
				done.Load(), began.Load(), ok.Load(), failed.Load())
		}
	})
}

// TestPanic checks that a change that panics is rolled back and its key is free.
func TestPanic(t *testing.T) {
	m := new(inbox.Memory)
	func() {
		defer func() { _ = recover() }()
		_, _ = m.Once(t.Context(), inbox.Key{ID: "a"}, func(context.Context, struct{}) error {
			panic("oops")
		})
	}()
	r, err := m.Once(t.Context(), inbox.Key{ID: "a"}, func(context.Context, struct{}) error {
		return nil
	})
	if r != inbox.Applied || err != nil {
		t.Error(r, err)
	}
	if m.Len() != 1 {
		t.Errorf("%d keys, want 1", m.Len())
	}
}

func TestBadOptions(t *testing.T) {
	good := inbox.Options[struct{}]{
		Verifier: trusting{}, Store: new(inbox.Memory),
		Change: func(context.Context, struct{}, inbox.Message) error {
			return nil
		},
	}
	for want, set := range map[string]func(o *inbox.Options[struct{}]){
		"Verifier is nil": func(o *inbox.Options[struct{}]) { o.Verifier = nil },
		"Store is nil":    func(o *inbox.Options[struct{}]) { o.Store = nil },
		"Change is nil":   func(o *inbox.Options[struct{}]) { o.Change = nil },
		"MaxBody -1":      func(o *inbox.Options[struct{}]) { o.MaxBody = -1 },
		"HMAC.Header":     func(o *inbox.Options[struct{}]) { o.Verifier = new(inbox.HMAC) },
	} {
		o := good
		set(&o)
		if _, err := inbox.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestKeys checks that a key that no database can store is rejected, since repeating it is useless.
func TestKeys(t *testing.T) {
	i := newInbox(t, func(context.Context, inbox.Message) error { return nil }, nil)
	for id, want := range map[string]int{
		"a": 200, "ä": 200, "\xff": 422, "a\x00": 422, "": 422, strings.Repeat("a", 257): 422,
	} {
		if w := post(i, id, "x"); w.Code != want {
			t.Errorf("key %q is answered %d, want %d", id, w.Code, want)
		}
	}
}
