package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/live"
	"github.com/penstock-io/penstock/engine/status"
)

// recordsOptions are Options with every feature that shows records.
func recordsOptions(token string) Options {
	level := new(slog.LevelVar)
	return Options{
		Token: token, LogTail: new(live.Log), LogLevel: level, Config: func() []byte {
			return []byte("pipelines: {}\n")
		},
		Deliveries: func() []DeliveryRoute { return nil },
		Letters: func(_ context.Context, q LetterQuery) (LetterPage, error) {
			if q.Route != "main" {
				return LetterPage{}, ErrNoRoute
			}
			text := "the record"
			return LetterPage{Entries: []Letter{{Entry: &deadletter.Entry{ID: "1", Record: &text}}},
				Matched: 1, Open: 1}, nil
		},
		Replay: func(_ context.Context, pipeline, route string, f deadletter.Filter,
			discard bool) (status.Replay, error) {
			switch {
			case route == "gone":
				return status.Replay{}, ErrNoRoute
			case route == "bad":
				return status.Replay{}, errors.New("sink http: http://me:secret@a/ refused")
			}
			return status.Replay{Pipeline: pipeline, Route: route, Letters: int64(len(f.IDs)), Discard: discard}, nil
		},
	}
}

// TestRecordsNeedAToken checks that without a token other users of the machine see no record, log
// line or option, and cannot change anything.
func TestRecordsNeedAToken(t *testing.T) {
	h := handler(t, recordsOptions(""))
	for _, path := range []string{apiDead + "?route=main", apiLog, apiConfig, apiLevel} {
		if code, text := get(h, "http://127.0.0.1"+path, nil); code != http.StatusForbidden ||
			!strings.Contains(text, "set admin.token") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	for _, path := range []string{apiReplay, apiDiscard, apiLevel} {
		if code, _ := get(h, "http://127.0.0.1"+path, func(r *http.Request) {
			r.Method = http.MethodPost
		}); code != http.StatusForbidden {
			t.Errorf("POST %s: %d", path, code)
		}
	}
}

func TestSession(t *testing.T) {
	o := recordsOptions("s3cret")
	o.Log, o.Status = slog.New(slog.DiscardHandler), picture
	s := newServer(o)
	h := s.Handler()
	send := func(method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if change != nil {
			change(r)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := send("GET", apiSession, "", nil); w.Code != 200 ||
		w.Body.String() != `{"signed_in":false,"token":true}`+"\n" {
		t.Errorf("before: %d %s", w.Code, w.Body)
	}
	if w := send("POST", apiSession, `{"token":"wrong"}`, nil); w.Code != 401 || len(w.Result().Cookies()) != 0 {
		t.Errorf("a wrong token: %d", w.Code)
	}
	w := send("POST", apiSession, `{"token":"s3cret"}`, nil)
	if w.Code != 200 || len(w.Result().Cookies()) != 1 {
		t.Fatalf("the token: %d", w.Code)
	}
	cookie := w.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Secure {
		t.Errorf("cookie %v", cookie)
	}
	with := func(change func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			r.AddCookie(cookie)
			if change != nil {
				change(r)
			}
		}
	}
	good := `{"pipeline":"access","route":"main","ids":["1"]}`
	for _, c := range []struct {
		name, method, path, body string
		change                   func(*http.Request)
		code                     int
		want                     string
	}{
		{"status", "GET", apiStatus, "", with(nil), 200, `"version":1`},
		{"letters", "GET", apiDead + "?route=main", "", with(nil), 200, "the record"},
		{"no such route", "GET", apiDead + "?route=x", "", with(nil), 404, "no such route"},
		{"wrong limit", "GET", apiDead + "?route=main&limit=0", "", with(nil), 400, "limit is a number"},
		{"history", "GET", apiHistory + "?route=access/main", "", with(nil), 200, `"step_seconds":10`},
		{"log", "GET", apiLog + "?after=0", "", with(nil), 200, `"lines":[]`},
		{"wrong line", "GET", apiLog + "?after=x", "", with(nil), 400, "after is not"},
		{"config", "GET", apiConfig, "", with(nil), 200, "pipelines"},
		{"replay", "POST", apiReplay, good, with(nil), 200, `"letters":1`},
		{"discard", "POST", apiDiscard, good, with(nil), 200, `"discard":true`},
		{"replay fails", "POST", apiReplay, `{"pipeline":"a","route":"bad","all":true}`, with(nil), 422,
			`"error":"sink http: http://***@a/ refused"`},
		{"replay of no route", "POST", apiReplay, `{"pipeline":"a","route":"gone","all":true}`,
			with(nil), 404, "no such route"},
		{"nothing selected", "POST", apiReplay, `{"pipeline":"a","route":"main"}`, with(nil), 400, "either ids or all"},
		{"both selected", "POST", apiReplay,
			`{"pipeline":"a","route":"main","all":true,"ids":["1"]}`, with(nil), 400, "either ids or all"},
		{"unknown field", "POST", apiReplay, `{"everything":true}`, with(nil), 400, "unknown field"},
		{"a form", "POST", apiReplay, good, with(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }),
			415, "application/json"},
		{"another site", "POST", apiReplay, good, with(func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-site")
		}), 403, ""},
		{"another origin", "POST", apiDiscard, good, with(func(r *http.Request) {
			r.Header.Set("Origin", "http://127.0.0.1:1")
		}), 403, ""},
		{"level", "POST", apiLevel, `{"level":"debug"}`, with(nil), 200, "debug"},
		{"no level", "POST", apiLevel, `{"level":"loud"}`, with(nil), 400, "debug, info, warn or error"},
		{"no cookie", "POST", apiReplay, good, nil, 401, "token"},
		{"a forged cookie", "GET", apiStatus, "", func(r *http.Request) {
			r.AddCookie(&http.Cookie{Name: cookie.Name,
				Value: "9999999999." + cookie.Value[strings.IndexByte(cookie.Value, '.')+1:]})
		}, 401, "token"},
		{"an expired cookie", "GET", apiStatus, "", func(r *http.Request) {
			r.AddCookie(&http.Cookie{Name: cookie.Name, Value: s.sessions.value(1)})
		}, 401, "token"},
	} {
		if w := send(c.method, c.path, c.body, c.change); w.Code != c.code ||
			!strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, w.Code, w.Body, c.code, c.want)
		}
	}
	if o.LogLevel.Level() != slog.LevelDebug {
		t.Errorf("the level is %v", o.LogLevel.Level())
	}
	if w := send("DELETE", apiSession, "", with(nil)); w.Result().Cookies()[0].MaxAge >= 0 {
		t.Error("signing out keeps the cookie")
	}
}

// TestOtherSitesChangeNothing sends every request that changes something, in the way a page of
// another site would. It sends each one, with the cookie of a session, to a server with a token
// and to one without. All must be refused.
func TestOtherSitesChangeNothing(t *testing.T) {
	for _, token := range []string{"s3cret", ""} {
		o := recordsOptions(token)
		o.Log, o.Status = slog.New(slog.DiscardHandler), picture
		o.Reload = func(context.Context) error { t.Error("reloaded"); return nil }
		o.Replay = func(
			context.Context, string, string, deadletter.Filter, bool,
		) (status.Replay, error) {
			t.Error("replayed")
			return status.Replay{}, nil
		}
		store := &oneDelivery{}
		o.Deliveries = func() []DeliveryRoute { return []DeliveryRoute{{"paid/main", store}} }
		s := newServer(o)
		expiry := time.Now().Add(time.Hour).Unix()
		for _, path := range []string{
			"POST " + apiReload, "POST " + apiReplay, "POST " + apiDiscard, "POST " + apiLevel,
			"POST " + apiDeliveries + "/a%2Fb/retry", "POST " + apiDeliveries + "/a%2Fb/cancel",
			"POST " + apiSession, "DELETE " + apiSession,
		} {
			method, path, _ := strings.Cut(path, " ")
			for name, value := range map[string]string{
				"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site",
			} {
				body := strings.NewReader(`{"level":"debug"}`)
				r := httptest.NewRequest(method, "http://127.0.0.1"+path, body)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set(name, value)
				r.AddCookie(s.sessions.cookie(r, s.sessions.value(expiry), time.Hour))
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
				if w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
					t.Errorf("%s %s with %s: %d %s", method, path, name, w.Code, w.Body)
				}
			}
		}
		if len(store.changes) > 0 || o.LogLevel.Level() == slog.LevelDebug {
			t.Errorf("changes: %v, level %v", store.changes, o.LogLevel.Level())
		}
	}
}

// TestSessionNamesParkingRoutes checks that the session lists the routes that park deliveries, for
// which the dashboard has a view.
func TestSessionNamesParkingRoutes(t *testing.T) {
	o := recordsOptions("")
	o.Deliveries = func() []DeliveryRoute { return []DeliveryRoute{{"paid/main", &oneDelivery{}}} }
	want := `{"signed_in":true,"token":false,"parking":["paid/main"]}` + "\n"
	if _, text := get(handler(t, o), "http://127.0.0.1"+apiSession, nil); text != want {
		t.Errorf("session %s", text)
	}
	o.Token = "s3cret"
	_, text := get(handler(t, o), "http://127.0.0.1"+apiSession, nil)
	if strings.Contains(text, "paid") {
		t.Errorf("session without a sign-in: %s", text)
	}
}
