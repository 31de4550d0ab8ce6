package stream_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

func TestMaskURLs(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"no URL: a@b ?x=y", "no URL: a@b ?x=y"},
		{"http://h", "http://h"},
		{"http://h:8080/in/x", "http://h:8080/in/x"},
		{"GET https://[::1]:9/%2F: 404 Not Found", "GET https://[::1]:9/%2F: 404 Not Found"},
		{"http://me:hunter2@h/in", "http://***@h/in"},
		{"http://me:hun@ter2@h/in", "http://***@h/in"},
		{"http://hunter2@h/in", "http://***@h/in"},
		{"http://me:hun/ter2@h/in", "http://***@h/in"},
		{"http://me:hun?ter2@h/in", "http://***@h/in"},
		{"http://me:hun ter2@h/in", "http://***@h/in"},
		{`"http://me:hun ter2@h/in" x@y`, `"http://***@h/in" x@y`},
		{`parse "http://me:hunter2%zz@h": invalid URL escape "%zz"`,
			`parse "http://***@h": invalid URL escape "%zz"`},
		{"http://h/a@b", "http://h/a@b"},
		{"http://h/in?token=hunter2", "http://h/in?token=***"},
		{"http://h/in?token=hunter2&a=b#c", "http://h/in?token=***&a=***#c"},
		{"http://h/in?hunter2", "http://h/in?***"},
		{"http://h/in?a=&b=hunter2;c=hunter2", "http://h/in?a=&b=***;c=***"},
		{"http://h/in?a=b?c=hunter2", "http://h/in?a=***?c=***"},
		{"http://h/in#access_token=hunter2", "http://h/in#access_token=***"},
		{"https://docs/page#section", "https://docs/page#section"},
		{"http://h/?token=${TOKEN}", "http://h/?token=${TOKEN}"},
		{"http://h/?token=${TOKEN:-hunter2}", "http://h/?token=***}"},
		{"http://${HOST}:${PORT}/?token=hunter2", "http://${HOST}:${PORT}/?token=***"},
		{"[http://a:hunter2@h,http://b:hunter2@i]", "[http://***@h,http://***@i]"},
		{"[http://a/?t=hunter2, http://b/?t=hunter2]", "[http://a/?t=***, http://b/?t=***]"},
		{"(see http://h/?t=hunter2).", "(see http://h/?t=***)."},
		{`Post "http://h/?t=hunter2": dial tcp: refused`,
			`Post "http://h/?t=***": dial tcp: refused`},
		{`{\"url\":\"http://h/?t=hunter2\"}`, `{\"url\":\"http://h/?t=***\"}`},
		{"postgres://me:hunter2@h:5432/db?password=hunter2",
			"postgres://***@h:5432/db?password=***"},
		{"http://h/?t=hunter2\nhttp://h/?t=hunter2", "http://h/?t=***\nhttp://h/?t=***"},
		{"http://h:hunter2", "http://***"},
		{"http://h:hunter2/in", "http://***/in"},
		{"write http://host:port/path", "write http://host:port/path"},
		{"write http:// or https://", "write http:// or https://"},
		{"kafka://a:9092,b:9092/x", "kafka://a:9092,b:9092/x"},
		{"http://b\u00fccher.example/", "http://b\u00fccher.example/"},
		{"://", "://"},
		{"http://", "http://"},
		{"http://@", "http://***@"},
	} {
		got := stream.MaskURLs(c.text)
		if got != c.want || strings.Contains(got, "hunter2") {
			t.Errorf("MaskURLs(%q) = %q, want %q", c.text, got, c.want)
		}
		if again := stream.MaskURLs(got); again != got {
			t.Errorf("MaskURLs(%q) = %q, want it unchanged", got, again)
		}
	}
}

// FuzzMaskURLs checks that MaskURLs masks the password and the query values of a URL.
func FuzzMaskURLs(f *testing.F) {
	f.Add("me", "secret", "host", "/in", "text ", " more")
	f.Add("", "p@ss/w?rd#", "[::1]:80", "/a@b", "\"", "\": refused")
	f.Add("a b", "://", "h", "", "http://x ", "")
	f.Fuzz(func(t *testing.T, user, password, host, path, before, after string) {
		stream.MaskURLs(before + "://" + user + password + after) // does not panic
		const marker = "Hunter2Marker"
		u := url.URL{
			Scheme: "http", User: url.UserPassword(user, password+marker), Host: "h",
			Path:     "/" + path,
			RawQuery: url.Values{"k": {marker}}.Encode(),
		}
		if got := stream.MaskURLs(" " + u.String()); strings.Contains(got, marker) {
			t.Errorf("MaskURLs(%q) = %q", u.String(), got)
		}
	})
}
