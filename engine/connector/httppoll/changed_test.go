package httppoll

import (
	"fmt"
	"io"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// delivered holds the records and spans that a reader returned in one process.
type delivered struct {
	texts []string
	spans []stream.Range
}

func (d *delivered) mark(settled ...int) *stream.Mark {
	m := &stream.Mark{Watermark: d.spans[0].From}
	for _, i := range settled {
		if m.Watermark == d.spans[i].From {
			m.Watermark = d.spans[i].To
		} else {
			m.Above = append(m.Above, d.spans[i])
		}
	}
	return m
}

// TestGrownPage checks a page that has got more records since it was read. At a restart, its old
// records are not settled, but those of the following page are. The source must read only the old
// records of the page: the additional ones are those of the following page.
func TestGrownPage(t *testing.T) {
	for mode, set := range modes {
		if mode == "link" || mode == "cursor" { // pages with a successor do not grow
			continue
		}
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(2, 10)
				a.inclusive = mode == "since with ids"
				x := open(t, a, "items", false, nil, set)
				var d delivered
				read := func() {
					texts, span, err := x.read(time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					d.texts, d.spans = append(d.texts, texts...), append(d.spans, span)
				}
				read()
				a.add(3)
				for len(d.texts) < 5 {
					read()
				}
				last := len(d.spans) - 1
				if last < 1 {
					t.Fatalf("spans %v", d.spans)
				}
				x = open(t, a, "items", false, d.mark(last), set)
				a.add(1)
				var got []string
				for len(got) < 3 {
					texts, _, err := x.read(time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, texts...)
				}
				all := a.all()
				if want := append(slices.Clone(all[:2]), all[5:]...); !slices.Equal(got, want) {
					t.Errorf("read %q\nwant %q", got, want)
				}
				if f := x.host.Faults(); len(f) > 0 {
					t.Errorf("faults %v", f)
				}
			})
		})
	}
}

// TestOpenLineIgnoredOffset checks that a server that ignores the offset is noticed, even if its
// responses end without a line end.
func TestOpenLineIgnoredOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(0, 10)
		a.handle = func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
			_, _ = io.WriteString(w, "a\nb")
			return true
		}
		x := open(t, a, "lines", false, nil, func(o *Options) {
			o.Format, o.Offset = Lines, "offset"
		})
		if texts, _, err := x.read(time.Hour); err != nil || !slices.Equal(texts, []string{"a"}) {
			t.Fatalf("read %q, %v", texts, err)
		}
		if _, _, err := x.read(time.Hour); err == nil ||
			!strings.Contains(err.Error(), "the server ignores the paging") {
			t.Errorf("Read = %v, want an error about the offset", err)
		}
	})
}

// TestOpenLine checks a page of lines that ends without a line end. The last line is read when its
// line end has come, or when a later response ends with the same line.
func TestOpenLine(t *testing.T) {
	for mode, set := range map[string]func(*Options){
		"one page": func(*Options) {}, "offset": func(o *Options) { o.Offset = "offset" },
	} {
		for _, c := range []struct {
			bodies []string
			once   bool
			want   []string
		}{
			{[]string{"a\nb", "a\nbc\nd\n"}, false, []string{"a", "bc", "d"}},
			{[]string{"a\nb", "a\nb"}, false, []string{"a", "b"}},
			{[]string{"a\nb", "a\nb\nc", "a\nb\nc\n"}, false, []string{"a", "b", "c"}},
			{[]string{"a\nb", "a\nb", "a\nbc\n"}, false, map[string][]string{
				"one page": {"a", "b"}, "offset": {"a", "bc"}, // the second request follows at once
			}[mode]},
			{[]string{"a\na"}, false, []string{"a", "a"}},
			{[]string{"a\nb"}, true, []string{"a", "b"}},
		} {
			t.Run(fmt.Sprintf("%s %q", mode, c.bodies), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := newAPI(0, 10)
					a.handle = func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
						body := c.bodies[min(len(a.requests), len(c.bodies))-1]
						from, _ := strconv.Atoi(r.URL.Query().Get("offset"))
						for range from {
							_, body, _ = strings.Cut(body, "\n")
						}
						if mode == "one page" {
							w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", body)))
						}
						if e := w.Header().Get("ETag"); e != "" && e == r.Header.Get("If-None-Match") {
							w.WriteHeader(nethttp.StatusNotModified)
							return true
						}
						_, _ = io.WriteString(w, body)
						return true
					}
					x := open(t, a, "lines", c.once, nil, func(o *Options) {
						o.Format = Lines
						set(o)
					})
					var got []string
					for len(got) < len(c.want) {
						texts, _, err := x.read(time.Hour)
						if err != nil {
							t.Fatalf("read %q: %v", got, err)
						}
						got = append(got, texts...)
					}
					if !slices.Equal(got, c.want) {
						t.Errorf("read %q, want %q", got, c.want)
					}
				})
			})
		}
	}
}

// TestVanished checks that unsettled records that are missing from the feed are counted and
// reported.
func TestVanished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(4, 10)
		x := open(t, a, "link", false, nil, func(*Options) {})
		var d delivered
		texts, span, _ := x.read(time.Minute)
		d.texts, d.spans = texts, []stream.Range{span}
		a.add(2)
		_, span, _ = x.read(time.Minute)
		d.spans = append(d.spans, span)
		a.mu.Lock()
		a.records = a.records[:3]
		a.mu.Unlock()
		x = open(t, a, "link", true, d.mark(1), func(*Options) {})
		var got []string
		var err error
		for err == nil {
			texts, _, err = x.read(time.Minute)
			got = append(got, texts...)
		}
		if len(got) != 3 || x.counts[recordsMissing] != 1 {
			t.Errorf("read %d records, %v; want 3, and 1 missing", len(got), x.counts)
		}
		if f := fmt.Sprint(x.host.Faults()); !strings.Contains(f, "no longer has records") {
			t.Errorf("faults %s", f)
		}
	})
}

// TestHeaders checks that the token and the configured headers reach the server.
func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(1, 10)
		x := open(t, a, "link", true, nil, func(o *Options) {
			o.Bearer, o.Headers = "t0ken", map[string]string{"X-Tenant": "7", "Accept": "application/vnd.x+json"}
		})
		if _, _, err := x.read(time.Minute); err != nil {
			t.Fatal(err)
		}
		h := a.requests[0].Header
		want := nethttp.Header{"Authorization": {"Bearer t0ken"}, "X-Tenant": {"7"},
			"Accept": {"application/vnd.x+json"}}
		for name, value := range want {
			if got := h[name]; !slices.Equal(got, value) {
				t.Errorf("%s is %q, want %q", name, got, value)
			}
		}
	})
}

// TestIgnoredPage checks that the route stops if the server ignores the request for the next page.
func TestIgnoredPage(t *testing.T) {
	for mode, set := range modes {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				a := newAPI(0, 1)
				a.handle = func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
					n++
					items := `[{"id":1},{"id":2}]`
					if mode == "link" {
						w.Header().Set("Link", fmt.Sprintf("</link?page=%d>; rel=next", n))
						io.WriteString(w, items)
						return true
					}
					fmt.Fprintf(w, `{"data":{"items":%s},"next":%d}`, items, n)
					return true
				}
				x := open(t, a, pathOf(mode), true, nil, set)
				var err error
				total := 0
				for err == nil {
					var texts []string
					texts, _, err = x.read(time.Minute)
					total += len(texts)
				}
				if mode == "since with ids" { // the source recognizes the records by id
					if err != io.EOF || total != 2 {
						t.Errorf("%d records, %v", total, err)
					}
				} else if total != 2 || !strings.Contains(err.Error(),
					"the server ignores the paging") {
					t.Errorf("%d records, %v", total, err)
				}
			})
		})
	}
}
