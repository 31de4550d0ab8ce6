package httppoll

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/stream"
)

// TestBadOptions checks that errors name the key and a remedy.
func TestBadOptions(t *testing.T) {
	t.Setenv("HTTP_PROXY", "")
	t.Setenv("HTTPS_PROXY", "")
	const u = `url: "https://api.test/x"`
	for _, c := range []struct{ options, want string }{
		{``, `url`},
		{`url: ""`, `url is empty`},
		{`url: "://x"`, `url: is not a URL; write https://host/path`},
		{`url: "api.test/x"`, `url: has the scheme ""; write http:// or https://`},
		{`url: "ftp://api.test"`, `url: has the scheme "ftp"; write http:// or https://`},
		{`url: "https:///x"`, `url: has no host; write https://host/path`},
		{`url: "https://api.test/x#top"`,
			`url: has a fragment (#...), which is never sent; remove it`},
		{`url: "https://me:pw@api.test/x", bearer: t`,
			`url: has a user, but basic, bearer or bearer_file gives another one; remove one of them`},
		{u + `, format: xml`, `format`},
		{u + `, format: lines, records: body`,
			`records: needs format: json; with format: lines each line is a record`},
		{u + `, records: "body."`, `records: unexpected end of expression`},
		{u + `, records: bdy.items`, `records: there is no field "bdy"`},
		{u + `, records: count`, `records: there is no field "count"`},
		{u + `, next: meta.id`, `next: meta belongs to records`},
		{u + `, next: "body.next =", cursor: c`, `next: = does not compare; write ==`},
		{u + `, cursor: c`,
			`cursor: needs next (the cursor in a response, such as body.next_cursor) or after (the cursor of a record, such as id)`},
		{u + `, after: id`, `after: needs cursor, the query parameter that gets its value`},
		{u + `, after: id, cursor: c, next: body.n`, `after: excludes next; remove one of them`},
		{u + `, offset: o, next: body.n`, `offset: excludes next; remove one of them`},
		{u + `, offset: o, cursor: c`, `offset: excludes cursor; remove one of them`},
		{u + `, offset: o, after: id`, `offset: excludes after; remove one of them`},
		{u + `, offset: o, id: id`, `id: needs next: pages of after and offset do not overlap`},
		{`url: "https://api.test/x?o=7", offset: o`, `offset: "o" is also in url; remove it there`},
		{`url: "https://api.test/x?c=7", next: body.n, cursor: c`,
			`cursor: "c" is also in url; remove it there`},
		{u + `, id: id, overlap: 0`, `overlap: is 0, want 1 to 64`},
		{u + `, id: id, overlap: 65`, `overlap: is 65, want 1 to 64`},
		{u + `, overlap: 5`, `overlap: needs id, which identifies repeated records`},
		{u + `, interval: {min: 1ms}`, `interval.min: is 1ms, want 10ms to 24h0m0s`},
		{u + `, interval: {max: 48h}`, `interval.max: is 48h0m0s, want 10ms to 24h0m0s`},
		{u + `, interval: {min: 10m}`, `interval.max: is 5m0s, less than interval.min, 10m0s`},
		{u + `, timeout: 0s`, `timeout: is 0s, want 100ms to 1h0m0s`},
		{u + `, retry: {min: 0s}`, `retry.min: is 0s, want 1ms to 1h0m0s`},
		{u + `, retry: {min: 5s, max: 1s}`, `retry.max: is 1s, less than retry.min, 5s`},
		{u + `, retry: {give_up: -1s}`, `retry.give_up`},
		{u + `, max_response: 1GiB`, `max_response: is 1GiB, want 1B to 512MiB`},
		{u + `, max_response: 0B`, `max_response: is 0B, want 1B to 512MiB`},
		{u + `, headers: {"X Y": a}`,
			`headers.X Y: the name has ' ', which is not allowed in a header name`},
		{u + `, headers: {X-A: "a\nb"}`,
			`headers.X-A: the value has the control character 0xa, which is not allowed`},
		{u + `, headers: {If-None-Match: a}`,
			`headers.If-None-Match: the source sets this header itself; remove it`},
		{u + `, headers: {authorization: a}, bearer: t`,
			`headers.authorization: basic, bearer or bearer_file already sets this header; remove one of them`},
		{u + `, bearer: "a b"`,
			`bearer: has a space, control or non-ASCII character, so it is not a token`},
		{u + `, bearer: a, bearer_file: /nowhere`,
			`bearer: basic, bearer and bearer_file exclude each other; remove all but one`},
		{u + `, basic: {user: "a:b"}`,
			`basic.user: has a colon, which is not possible in basic auth`},
		{u + `, tls: {cert: /nowhere}`, `tls.key: is missing: add the key of tls.cert`},
		{u + `, tls: {ca: /nowhere}`, `tls.ca: open /nowhere`},
		{`url: "http://api.test/", tls: {server_name: x}`,
			`tls: url is not https, so nothing would be encrypted; write https:// or remove tls`},
		{u + `, proxy: "ftp://p:1"`, `proxy: has another scheme than http://, https:// or socks5://`},
		{u + `, intervall: {}`, `intervall`},
	} {
		_, err := engine.Parse([]byte("{pipelines: {p: {source: {http_poll: {"+c.options+
			"}}, sink: drop}}}"), Source(), dropSink())
		if err == nil {
			t.Errorf("%s: accepted, want %s", c.options, c.want)
			continue
		}
		// the config reader omits the colon before "is"
		plain := func(s string) string { return strings.ReplaceAll(s, ": ", " ") }
		if text := err.Error(); !strings.Contains(plain(text), plain(c.want)) {
			t.Errorf("%s:\n%v\nwant %s", c.options, err, c.want)
		} else if strings.Contains(text, "me:pw") {
			t.Errorf("%s: the message holds a password: %v", c.options, err)
		}
	}
}

// dropSink returns a sink for configs that are only parsed.
func dropSink() stream.Component {
	return stream.Component{
		Role: stream.SinkRole, Name: "drop", Options: func() any { return new(struct{}) },
		New: func(any, stream.Host) (any, error) { return nil, nil },
	}
}

func TestResolve(t *testing.T) {
	for _, c := range []struct {
		url, token string
		set        func(o *Options)
		want       string
	}{
		{"https://u:p@a.test/x?limit=5", "", nil, "https://a.test/x?limit=5"},
		{"https://a.test", "", nil, "https://a.test/"},
		{"https://a.test/x?limit=5", "/y?page=2", nil, "https://a.test/y?page=2"},
		{"https://a.test/x?limit=5", "//evil.test/y?page=2", nil, "https://a.test//evil.test/y?page=2"},
		{"https://a.test/x?limit=5", "https://evil.test/y", nil, "https://a.test/y"},
		{"https://a.test/x", "/a%2Fb?q=%20", nil, "https://a.test/a%2Fb?q=%20"},
		{"https://a.test/x?limit=5", "", func(o *Options) {
			o.Next, o.Cursor = "body.n", "c"
		}, "https://a.test/x?limit=5"},
		{"https://a.test/x?limit=5", "a&b=1 ü", func(o *Options) { o.Next, o.Cursor = "body.n", "c" },
			"https://a.test/x?limit=5&c=a%26b%3D1+%C3%BC"},
		{"https://a.test/x", "", func(o *Options) { o.Offset = "from" }, "https://a.test/x?from=0"},
		{"https://a.test/x", "17", func(o *Options) { o.Offset = "from" }, "https://a.test/x?from=17"},
	} {
		o := DefaultOptions()
		o.URL, o.Proxy = c.url, "none"
		if c.set != nil {
			c.set(o)
		}
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		if got := o.resolve(c.token).String(); got != c.want {
			t.Errorf("page %q of %s is %s, want %s", c.token, c.url, got, c.want)
		}
	}
}

func TestLines(t *testing.T) {
	o := DefaultOptions()
	o.URL, o.Format, o.Proxy, o.ID = "https://a.test/x", Lines, "none", "message"
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	c, err := o.extract(&response{url: o.target, status: 200, body: []byte("a\r\n\r\nb\nc")}, "")
	if err != nil || len(c.records) != 3 || string(c.records[2]) != "c" || slices.Contains(c.ids, digest{}) {
		t.Errorf("%q, %v", c.records, err)
	}
}
