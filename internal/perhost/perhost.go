// Package perhost keeps one value, such as a limiter, for each host that an http.RoundTripper talks
// to.
package perhost

import (
	"container/list"
	"net/http"
	"strings"
	"sync"
)

// Table maps hosts to values. If there are more than a maximum number of hosts, it drops the least
// recently used one. It is safe for concurrent use. The zero value is an empty table.
type Table[T any] struct {
	mu      sync.Mutex
	entries map[string]*list.Element // elements of recent, by host
	recent  list.List                // of *entry[T], the most recently used first
}

type entry[T any] struct {
	host  string
	value T
}

// DefaultMax is the maximum number of hosts in a Table if Get is called with 0 as the maximum.
const DefaultMax = 1000

// Host returns the host in req's URL, with the port if the URL has one, in lower case.
func Host(req *http.Request) string {
	if req.URL == nil {
		return ""
	}
	return strings.ToLower(req.URL.Host)
}

// Find returns the value for a host, or false if there is none.
func (t *Table[T]) Find(host string) (T, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[strings.ToLower(host)]; ok {
		return e.Value.(*entry[T]).value, true
	}
	var zero T
	return zero, false
}

// Get returns the value for a host. If there is none, it calls create and keeps the result unless
// create fails. The parameter most is the maximum number of hosts. Zero means DefaultMax, and a
// negative number means 1.
func (t *Table[T]) Get(host string, most int, create func() (T, error)) (T, error) {
	if most == 0 {
		most = DefaultMax
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[host]; ok {
		t.recent.MoveToFront(e)
		return e.Value.(*entry[T]).value, nil
	}
	value, err := create()
	if err != nil {
		return value, err
	}
	if t.entries == nil {
		t.entries = make(map[string]*list.Element)
	}
	t.entries[host] = t.recent.PushFront(&entry[T]{host, value})
	for len(t.entries) > max(most, 1) {
		last := t.recent.Back()
		t.recent.Remove(last)
		delete(t.entries, last.Value.(*entry[T]).host)
	}
	return value, nil
}

// CloseBody closes the body of a request that is not sent, as http.RoundTripper demands.
func CloseBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // nothing was read of it
	}
}
