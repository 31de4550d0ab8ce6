package httppoll

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// session is a reader in virtual time, with the counters of its route.
type session struct {
	t      *testing.T
	a      *api
	host   *streamtest.Host
	r      stream.Reader
	began  time.Time
	counts map[string]int64
}

func open(t *testing.T, a *api, path string, once bool, m *stream.Mark, set func(o *Options)) *session {
	t.Helper()
	x := &session{t: t, a: a, host: connectortest.NewHost(t), began: time.Now(), counts: make(map[string]int64)}
	s := newSource(t, a, path, x.host, set)
	r, err := s.Open(t.Context(), stream.OpenOptions{
		Route: streamtest.Route, Once: once, Count: func(name string, n int64) { x.counts[name] += n },
		Resume: func(string) (stream.Mark, bool) {
			if m == nil {
				return stream.Mark{}, false
			}
			return *m, true
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.r = r
	t.Cleanup(func() { r.Close() })
	return x
}

// read reads one batch. It waits at most limit, in virtual time.
func (x *session) read(limit time.Duration) (texts []string, span stream.Range, err error) {
	ctx, cancel := context.WithTimeoutCause(x.t.Context(), limit, errors.New("nothing came"))
	defer cancel()
	b := stream.NewBatch(stream.BatchLimits{})
	err = x.r.Read(ctx, b)
	for i := range b.Records {
		texts = append(texts, string(b.Text(i)))
	}
	if len(b.Spans) > 0 {
		span = b.Spans[0].Range
	}
	return texts, span, err
}

// gaps returns the waits between requests.
func gaps(at []time.Time) (out []time.Duration) {
	for i := 1; i < len(at); i++ {
		out = append(out, at[i].Sub(at[i-1]))
	}
	return out
}

// TestInterval checks that the interval grows while there are no new records, and is shortest after
// new records.
func TestInterval(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { interval(t, mode, set) }) })
	}
}

func interval(t *testing.T, mode string, set func(o *Options)) {
	a := newAPI(3, 10)
	var at []time.Time
	a.handle = func(nethttp.ResponseWriter, *nethttp.Request) bool { at = append(at, time.Now()); return false }
	x := open(t, a, pathOf(mode), false, nil, func(o *Options) {
		o.Interval = Interval{Min: time.Second, Max: time.Minute}
		set(o)
	})
	if texts, _, err := x.read(time.Second); len(texts) != 3 || err != nil {
		t.Fatal(texts, err)
	}
	if texts, _, err := x.read(20 * time.Minute); texts != nil || err == nil {
		t.Fatal(texts, err)
	}
	waits := gaps(at)
	behind := 0 // requests after the last record, which find the end
	if mode != "link" && mode != "cursor" {
		behind, waits = 1, waits[1:]
	}
	last := waits[len(waits)-1]
	if waits[0] < 900*time.Millisecond || waits[0] > 1100*time.Millisecond ||
		last < 54*time.Second || last > 66*time.Second {
		t.Errorf("waits %v, want from 1s to 1m with jitter", waits)
	}
	if n := len(waits); n > 40 {
		t.Errorf("%d requests in 20 minutes", n)
	}
	equal := 0
	for i := 1; i < len(waits); i++ {
		if waits[i] == waits[i-1] {
			equal++
		}
	}
	if equal > 0 {
		t.Errorf("%d waits are equal: no jitter", equal)
	}
	a.add(1)
	if texts, _, err := x.read(2 * time.Minute); len(texts) != 1 || err != nil {
		t.Fatal(texts, err)
	}
	found := len(at)
	x.read(1200 * time.Millisecond)
	if n := len(at) - found; n < 1 || n > 1+behind {
		t.Errorf("after news %d requests in 1.2s, want 1 at the end of the feed", len(at)-found)
	}
	if mode == "link" && x.counts[pollsUnchanged] == 0 || x.counts[polls] != int64(len(at)) {
		t.Errorf("counted %v of %d requests", x.counts, len(at))
	}
}

// TestNotRead checks that no request is sent while the route does not read.
func TestNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(30, 10)
		x := open(t, a, "link", false, nil, func(*Options) {})
		x.read(time.Second)
		time.Sleep(time.Hour)
		if n := len(a.requests); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}

// TestServerDemands checks that Retry-After and RateLimit delay requests, and that failures are
// retried.
func TestServerDemands(t *testing.T) {
	for _, c := range []struct {
		name        string
		answer      func(w nethttp.ResponseWriter)
		least, most time.Duration // until the next request
		counter     string
	}{
		{"429 with Retry-After", func(w nethttp.ResponseWriter) {
			w.Header().Set("Retry-After", "90")
			w.WriteHeader(429)
		},
			90 * time.Second, 91 * time.Second, pollsThrottled},
		{"503 with Retry-After", func(w nethttp.ResponseWriter) {
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(503)
		},
			5 * time.Second, 6 * time.Second, pollsThrottled},
		{"skewed clock", func(w nethttp.ResponseWriter) {
			w.Header().Set("Date", time.Now().Add(9*time.Hour).UTC().Format(nethttp.TimeFormat))
			w.Header().Set("Retry-After", time.Now().Add(9*time.Hour+20*time.Second).UTC().Format(nethttp.TimeFormat))
			w.WriteHeader(429)
		}, 19 * time.Second, 22 * time.Second, pollsThrottled},
		{"no requests left", func(w nethttp.ResponseWriter) {
			w.Header().Set("RateLimit", `"default";r=0;t=40`)
			w.Header().Set("Link", `</link?page=0>; rel=next`)
			io.WriteString(w, `[{"id":0}]`)
		}, 40 * time.Second, 41 * time.Second, polls},
		{"500", func(w nethttp.ResponseWriter) { w.WriteHeader(500) }, 0, time.Second, pollsFailed},
		{"a page for people", func(w nethttp.ResponseWriter) {
			io.WriteString(w, "<html>Sorry</html>")
		}, 0, time.Second, pollsFailed},
		{"cut in the middle", func(w nethttp.ResponseWriter) {
			io.WriteString(w, `[{"id":1},{"i`)
		}, 0, time.Second, pollsFailed},
		{"empty body", func(w nethttp.ResponseWriter) { w.WriteHeader(200) }, 0, time.Second, pollsFailed},
		{"wrong gzip", func(w nethttp.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "[]")
		},
			0, time.Second, pollsFailed},
		{"unknown encoding", func(w nethttp.ResponseWriter) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "[]")
		},
			0, time.Second, pollsFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(3, 10)
				var at []time.Time
				a.handle = func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
					at = append(at, time.Now())
					if len(at) == 1 {
						c.answer(w)
					}
					return len(at) == 1
				}
				x := open(t, a, "link", false, nil, func(*Options) {})
				total := 0
				for total < 3 {
					texts, _, err := x.read(10 * time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					for _, text := range texts {
						if text != `{"id":0}` {
							total++
						}
					}
				}
				if wait := at[1].Sub(at[0]); wait < c.least || wait > c.most {
					t.Errorf("the next request came after %v, want %v to %v", wait, c.least, c.most)
				}
				if x.counts[c.counter] == 0 {
					t.Errorf("%s is 0: %v", c.counter, x.counts)
				}
			})
		})
	}
}

// redirect returns a handler that responds with a redirect.
func redirect(to string) func(w nethttp.ResponseWriter) {
	return func(w nethttp.ResponseWriter) {
		w.Header().Set("Location", to)
		w.WriteHeader(nethttp.StatusFound)
	}
}

// TestEnds checks that errors that need an operator end the route, with a remedy and without
// secrets.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(w nethttp.ResponseWriter)
		set    func(o *Options)
		want   string
	}{
		{"401", func(w nethttp.ResponseWriter) {
			w.WriteHeader(401)
		}, nil, "401 Unauthorized: check basic, bearer or bearer_file"},
		{"403", func(w nethttp.ResponseWriter) {
			w.WriteHeader(403)
		}, nil, "403 Forbidden: the credentials do not permit this"},
		{"404", func(w nethttp.ResponseWriter) { w.WriteHeader(404) }, nil, "404 Not Found: check url"},
		{"400", func(w nethttp.ResponseWriter) { w.WriteHeader(400) }, nil, "400 Bad Request: check url and headers"},
		{"304 to a plain request", func(w nethttp.ResponseWriter) { w.WriteHeader(304) }, nil,
			"304 Not Modified: the request was not conditional"},
		{"redirect to another host", redirect("http://evil.test/x"), nil,
			"redirects to another server, http://evil.test"},
		{"redirect to another port", redirect("http://api.test:81/x"), nil,
			"redirects to another server, http://api.test:81"},
		{"redirects without end", redirect("/link?page=0"), nil,
			"redirects more than 5 times"},
		{"link to another host", func(w nethttp.ResponseWriter) {
			w.Header().Set("Link", `<http://evil.test/link?page=1>; rel=next`)
			io.WriteString(w, `[{"id":1}]`)
		}, nil, "the link to the next page leads to another server, http://evil.test"},
		{"link with a user", func(w nethttp.ResponseWriter) {
			w.Header().Set("Link", `<http://u:p@api.test/link?page=1>; rel=next`)
			io.WriteString(w, `[{"id":1}]`)
		}, nil, "leads to another server"},
		{"too large", func(w nethttp.ResponseWriter) { io.WriteString(w, `["`+strings.Repeat("x", 2000)+`"]`) },
			func(o *Options) { o.MaxResponse = 1000 }, "larger than max_response"},
		{"no array", func(w nethttp.ResponseWriter) {
			io.WriteString(w, `{"items":[]}`)
		}, nil, "set `records` to the array of records"},
		{"records elsewhere", func(w nethttp.ResponseWriter) { io.WriteString(w, `{"item":[]}`) },
			func(o *Options) { o.Records = "body.items" },
			"`records`: body.items is null or missing; if that means no records, write (body.items) ?? []"},
		{"records no array", func(w nethttp.ResponseWriter) { io.WriteString(w, `{"items":7}`) },
			func(o *Options) { o.Records = "body.items" }, "`records`: body.items is not an array"},
		{"next no cursor", func(w nethttp.ResponseWriter) { io.WriteString(w, `[{"id":1}]`) },
			func(o *Options) { o.Next, o.Cursor = "last", "c" }, "`next`: last is neither text nor a number"},
		{"next too long", func(w nethttp.ResponseWriter) { fmt.Fprintf(w, `[{"id":%q}]`, strings.Repeat("x", 2000)) },
			func(o *Options) {
				o.Next, o.Cursor = "last.id",
					"c"
			}, "`next` has 2000 bytes, but a position holds at most 1013"},
		{"after missing", func(w nethttp.ResponseWriter) { io.WriteString(w, `[{"id":1},{}]`) },
			func(o *Options) { o.After, o.Cursor = "id", "c" }, "`after`: id is null or missing in record 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(3, 10)
				a.handle = func(w nethttp.ResponseWriter, _ *nethttp.Request) bool { c.answer(w); return true }
				x := open(t, a, "link?key=s3cret", false, nil, func(o *Options) {
					o.URL = strings.Replace(o.URL, "://", "://me:hunter2@", 1)
					if c.set != nil {
						c.set(o)
					}
				})
				_, _, err := x.read(time.Minute)
				for err == nil {
					_, _, err = x.read(time.Minute)
				}
				if !strings.Contains(err.Error(), c.want) ||
					!strings.HasPrefix(err.Error(), "GET http://api.test/link: ") {
					t.Errorf("%v\nwant GET http://api.test/link: ... %s", err, c.want)
				}
				if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error holds a secret: %v", err)
				}
			})
		})
	}
}

// TestGivesUp checks that a finite run ends if requests fail for a long time, and that a continuous
// run does not.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(3, 10)
		a.handle = func(w nethttp.ResponseWriter, _ *nethttp.Request) bool { w.WriteHeader(502); return true }
		x := open(t, a, "link", true, nil, func(*Options) {})
		began := time.Now()
		_, _, err := x.read(time.Hour)
		if err == nil || !strings.Contains(err.Error(),
			"GET http://api.test/link: 502 Bad Gateway") || time.Since(began) > 3*time.Minute {
			t.Errorf("a finite run: %v after %v", err, time.Since(began))
		}
		x = open(t, a, "link", false, nil, func(*Options) {})
		if _, _, err := x.read(time.Hour); err == nil || err.Error() != "nothing came" {
			t.Errorf("%v, want no end", err)
		}
	})
}

// TestExpiredCursor checks the remedy for a page that the server no longer accepts.
func TestExpiredCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(30, 10)
		x := open(t, a, "link", false, nil, func(*Options) {})
		x.read(time.Second)
		a.handle = func(w nethttp.ResponseWriter, _ *nethttp.Request) bool { w.WriteHeader(410); return true }
		_, _, err := x.read(time.Minute)
		if err == nil || !strings.Contains(err.Error(), "410 Gone: the server does not accept "+
			"the page of the checkpoint") {
			t.Error(err)
		}
	})
}

// TestEmptyPages checks pages without records in a feed with a new cursor in each response. A few
// of them are passed without a pause. After maxEmptyPages of them, a finite run ends, and any other
// run waits between requests.
func TestEmptyPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(o *Options) { o.Records, o.Next, o.Cursor = "body.items", "body.next", "c" }
		n, news := 0, 5
		a := newAPI(0, 1)
		a.handle = func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
			n++
			items := "[]"
			if n == news {
				items = `[{"id":1}]`
			}
			fmt.Fprintf(w, `{"items":%s,"next":"c%d"}`, items, n)
			return true
		}
		x := open(t, a, "items", true, nil, set)
		got := 0
		for {
			texts, _, err := x.read(time.Minute)
			got += len(texts)
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if got != 1 || n != news+maxEmptyPages {
			t.Errorf("%d records in %d requests, want 1 in %d", got, n, news+maxEmptyPages)
		}
		n, news = 0, -1
		x = open(t, a, "items", false, nil, set)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		for ctx.Err() == nil {
			x.r.Read(ctx, stream.NewBatch(stream.BatchLimits{}))
		}
		if n > maxEmptyPages+30 {
			t.Errorf("%d requests in 10 minutes for pages without records", n)
		}
	})
}

// TestTail checks, in every mode, that records added to the last page are read once.
func TestTail(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(0, 10)
				a.inclusive = mode == "since with ids"
				x := open(t, a, pathOf(mode), false, nil, set)
				var got []string
				for i := range 40 {
					a.add(i % 7)
					for len(got) < len(a.all()) {
						texts, _, err := x.read(10 * time.Minute)
						if err != nil {
							t.Fatal(err)
						}
						got = append(got, texts...)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(a.all()) {
					t.Errorf("read %d records, want %d, each once", len(got), len(a.all()))
				}
			})
		})
	}
}
