package perhost

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestTableForgetsTheLeastRecentlyUsed(t *testing.T) {
	var table Table[int]
	made := 0
	get := func(host string) int {
		v, err := table.Get(host, 2, func() (int, error) { made++; return made, nil })
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i, v := range []struct {
		host string
		want int
	}{{"a", 1}, {"b", 2}, {"a", 1}, {"c", 3}, {"a", 1}, {"b", 4}, {"c", 5}} {
		if got := get(v.host); got != v.want {
			t.Errorf("step %d: %s has %d, want %d", i, v.host, got, v.want)
		}
	}
	if v, ok := table.Find("B"); v != 4 || !ok {
		t.Errorf("Find returned %d, %v, want 4, true", v, ok)
	}
	if _, ok := table.Find("a"); ok {
		t.Error("Find returned a host that was forgotten")
	}
	failed := errors.New("failed")
	if _, err := table.Get("d", -1, func() (int, error) { return 0, failed }); err != failed {
		t.Errorf("Get returned %v, want the error of create", err)
	}
	v, err := table.Get("d", -1, func() (int, error) { return 9, nil })
	if v != 9 || err != nil || len(table.entries) != 1 {
		t.Errorf("Get returned %v, %v and keeps %d, want 9 and 1", v, err, len(table.entries))
	}
	if got := Host(httptest.NewRequest("GET", "http://A:80/x", nil)); got != "a:80" {
		t.Errorf("host is %q, want a:80", got)
	}
	if got := Host(&http.Request{}); got != "" {
		t.Errorf("a request without URL has host %q", got)
	}
}

func TestCloseBody(t *testing.T) {
	body := &closer{}
	CloseBody(&http.Request{Body: body})
	CloseBody(&http.Request{})
	if !body.closed {
		t.Error("the body is open")
	}
}

type closer struct{ closed bool }

func (c *closer) Read([]byte) (int, error) { return 0, io.EOF }
func (c *closer) Close() error             { c.closed = true; return nil }
