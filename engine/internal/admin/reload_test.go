package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/status"
)

func TestReload(t *testing.T) {
	for _, x := range []struct {
		name, method string
		header       map[string]string
		fails        error
		code         int
		want         string
		calls        int
	}{
		{name: "done", method: http.MethodPost, code: 200, want: `"ok":true`, calls: 1},
		{name: "invalid", method: http.MethodPost, fails: errors.New("a.yaml:3:1: unknown key, " +
			"see http://me:secret@host/"),
			code: 422, want: `a.yaml:3:1: unknown key`, calls: 1},
		{name: "not a change", method: http.MethodGet, code: 405, want: "Method Not Allowed"},
		{name: "no token", method: http.MethodPost, header: map[string]string{"Authorization": ""},
			code: 401, want: "token"},
		{name: "another site", method: http.MethodPost,
			header: map[string]string{"Origin": "http://evil.example"}, code: 403},
		{name: "another site, by fetch", method: http.MethodPost,
			header: map[string]string{"Sec-Fetch-Site": "cross-site"}, code: 403},
		{name: "another host", method: http.MethodPost, header: map[string]string{"Host": "evil.example"}, code: 421},
	} {
		t.Run(x.name, func(t *testing.T) {
			calls := 0
			h := handler(t, Options{Token: "t", Hosts: []string{"a.example"}, Reload: func(context.Context) error {
				calls++
				return x.fails
			}})
			r := httptest.NewRequest(x.method, "http://127.0.0.1"+apiReload, nil)
			r.Header.Set("Authorization", "Bearer t")
			for name, value := range x.header {
				r.Header.Set(name, value)
				if name == "Host" {
					r.Host = value
				}
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			text := w.Body.String()
			if w.Code != x.code || !strings.Contains(text, x.want) ||
				strings.Contains(text, "secret") || calls != x.calls {
				t.Errorf("%d %s, %d calls; want %d with %q, %d", w.Code, text, calls, x.code, x.want, x.calls)
			}
		})
	}
}

// TestReloadClient checks that a reload continues after its client has given up. The client must be
// able to distinguish the result of a reload from an unknown result.
func TestReloadClient(t *testing.T) {
	entered, results := make(chan context.Context, 1), make(chan error)
	server := httptest.NewServer(handler(t, Options{
		Reload: func(ctx context.Context) error {
			entered <- ctx
			return <-results
		},
		Status: func() status.Status { return status.Status{Version: 1, Reload: &status.Reload{Count: 3, Failed: 1}} },
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() {
		_, err := Reload(ctx, server.Listener.Addr().String(), "")
		given <- err
	}()
	reloading := <-entered
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("Reload = %v after its context ended", err)
	}
	if reloading.Err() != nil {
		t.Error("the reload was stopped with its client")
	}
	results <- nil // the first reload takes it
	go func() { results <- nil }()
	r, err := Reload(t.Context(), server.Listener.Addr().String(), "")
	if err != nil || !r.OK || r.Count != 3 || r.Failed != 1 {
		t.Errorf("Reload = %+v, %v", r, err)
	}
	<-entered
	go func() { results <- errors.New("unknown key") }()
	if r, err := Reload(t.Context(), server.Listener.Addr().String(), ""); err != nil || r.OK ||
		r.Error != "unknown key" {
		t.Errorf("Reload of an invalid config = %+v, %v", r, err)
	}
}
