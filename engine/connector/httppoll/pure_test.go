package httppoll

import (
	"fmt"
	"maps"
	nethttp "net/http"
	"slices"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

func TestParseLinks(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  map[string]string
	}{
		{nil, map[string]string{}},
		{
			[]string{`<https://a/x?page=2>; rel="next", <https://a/x?page=9>; rel="last"`},
			map[string]string{"next": "https://a/x?page=2", "last": "https://a/x?page=9"},
		},
		{[]string{`<a?q=1,2;3>;rel=next`}, map[string]string{"next": "a?q=1,2;3"}},
		{
			[]string{`<a>; title="x, <b>; rel=next"; rel="prev first"`, `<c>; REL=Next`},
			map[string]string{"prev": "a", "first": "a", "next": "c"},
		},
		{[]string{`<a>; rel=next, <b>; rel=next`}, map[string]string{"next": "a"}},
		{[]string{`<a>; rel=`, `<unclosed; rel=next`, `no link`}, map[string]string{}},
		{[]string{`<a>; title="\"; rel=next"; rel=last`}, map[string]string{"last": "a"}},
	} {
		if got := parseLinks(c.lines); !maps.Equal(got, c.want) {
			t.Errorf("parseLinks(%q) = %v, want %v", c.lines, got, c.want)
		}
	}
}

func FuzzParseLinks(f *testing.F) {
	f.Add(`<https://a/x?page=2>; rel="next", <b>; rel=last`)
	f.Add(`<a>; title="\`)
	f.Fuzz(func(t *testing.T, line string) { parseLinks([]string{line}) })
}

func TestPlace(t *testing.T) {
	tail := []digest{digestOf([]byte("a")), digestOf([]byte("b"))}
	for _, p := range []place{
		{mode: byURL}, {mode: byURL, token: "/x?page=2", base: 101},
		{mode: byCursor, token: "opaque\x00", base: 1 << 40, tail: tail},
		{mode: byRecord, token: "7", base: 7}, {mode: byURL, base: 1},
	} {
		made, err := newPlace(p.mode, p.token, p.base, p.tail)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readPlace(p.mode, made.key)
		if err != nil || got.token != p.token || got.base != p.base ||
			!slices.Equal(got.tail, p.tail) || got.key != made.key {
			t.Errorf("%+v came back as %+v, %v", p, got, err)
		}
	}
	made, _ := newPlace(byCursor, "x", 1, nil)
	for _, key := range []string{"x", "\x02" + made.key[1:], made.key[:9], made.key[:10] + "\xff\xff\xff\xff\x7f"} {
		if _, err := readPlace(byCursor, key); err == nil {
			t.Errorf("readPlace(%q) took a damaged key", key)
		}
	}
	if _, err := readPlace(byURL, made.key); err == nil {
		t.Error("a cursor was taken for a URL")
	}
	if _, err := newPlace(byCursor, string(make([]byte, maxKey)), 1, nil); err == nil {
		t.Error("a key that no ledger can hold was made")
	}
}

func FuzzReadPlace(f *testing.F) {
	p, _ := newPlace(byCursor, "x9", 8, []digest{{1}})
	f.Add(p.key)
	f.Add("\x01c\x00\x00\x00\x00\x00\x00\x00\x01\xff")
	f.Fuzz(func(t *testing.T, key string) {
		p, err := readPlace(byCursor, key)
		if err == nil && key != "" {
			again, err := newPlace(p.mode, p.token, p.base, p.tail)
			if err != nil && len(key) <= maxKey || again.token != p.token {
				t.Errorf("%q: %+v, then %+v, %v", key, p, again, err)
			}
		}
	})
}

func TestLastOf(t *testing.T) {
	d := func(ids ...byte) (out []digest) {
		for _, i := range ids {
			out = append(out, digest{i})
		}
		return out
	}
	for _, c := range []struct {
		a, b, want []digest
	}{
		{nil, nil, nil}, {d(1, 2), d(3), d(1, 2, 3)}, {d(1, 2, 3), d(4, 5), d(3, 4, 5)},
		{d(1, 2), d(2, 2, 3), d(1, 2, 3)},
		{d(9), d(1, 0, 2, 3, 4), d(2, 3, 4)},
	} {
		if got := lastOf(3, c.a, c.b); !slices.Equal(got, c.want) {
			t.Errorf("lastOf(3, %v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		status      int
		conditional bool
		retryAfter  bool
		want        verdict
	}{
		{200, false, false, answered}, {204, false, false, answered}, {304, true, false, unchanged},
		{304, false, false, misconfigured},
		{301, true, false, misconfigured}, {400, false, false, misconfigured}, {401, false, false, misconfigured},
		{403, false, true, misconfigured}, {404, false, false, misconfigured}, {408, false, false, temporary},
		{410, false, false, misconfigured}, {425, false, false, temporary}, {429, false, false, throttled},
		{500, false, true, temporary}, {503, false, false, temporary},
		{503, false, true, throttled}, {599, false, false, temporary},
	} {
		if got := judge(c.status, c.conditional, c.retryAfter); got != c.want {
			t.Errorf("judge(%d, %v, %v) = %d, want %d", c.status, c.conditional, c.retryAfter, got, c.want)
		}
	}
}

// TestDemanded checks demands of servers with wrong clocks, and the bound of the wait.
func TestDemanded(t *testing.T) {
	now := time.Date(2026, 1, 5, 6, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(nethttp.TimeFormat) }
	for _, c := range []struct {
		header map[string]string
		v      verdict
		want   time.Duration
	}{
		{map[string]string{}, throttled, 0},
		{map[string]string{"Retry-After": "7"}, throttled, 7 * time.Second},
		{map[string]string{"Retry-After": "7"}, answered, 0},
		{map[string]string{"Retry-After": date(30 * time.Second)}, throttled, 30 * time.Second},
		{map[string]string{"Retry-After": date(-3*time.Hour + 30*time.Second),
			"Date": date(-3 * time.Hour)}, throttled, 30 * time.Second},
		{map[string]string{"Retry-After": date(5*time.Hour + time.Second),
			"Date": date(5 * time.Hour)}, throttled, time.Second},
		{map[string]string{"Retry-After": "999999999"}, throttled, maxHold},
		{map[string]string{"Retry-After": "-5"}, throttled, 0},
		{map[string]string{"Ratelimit": `"default";r=0;t=12`}, answered, 12 * time.Second},
		{map[string]string{"Ratelimit": `"default";r=1;t=12`}, answered, 0},
		{map[string]string{"X-Ratelimit-Remaining": "0",
			"X-Ratelimit-Reset": fmt.Sprint(now.Unix() + 40)}, answered, 40 * time.Second},
	} {
		h := make(nethttp.Header)
		for k, v := range c.header {
			h.Set(k, v)
		}
		if got := demanded(h, c.v, now); got != c.want {
			t.Errorf("demanded(%v, %d) = %v, want %v", c.header, c.v, got, c.want)
		}
	}
}

func TestPositionOrder(t *testing.T) {
	a, _ := newPlace(byCursor, "zzz", 4, nil)
	b, _ := newPlace(byCursor, "aaa", 9, nil)
	if pa, pb := a.position(8), b.position(9); pa.Compare(pb) >= 0 || pa == (stream.Position{}) {
		t.Errorf("%v does not precede %v", pa, pb)
	}
}
