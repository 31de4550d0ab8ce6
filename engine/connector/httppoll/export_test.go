package httppoll

import nethttp "net/http"

// Feed exports api to the tests of package httppoll_test.
type Feed struct{ a *api }

// NewFeed returns a feed of n records, with limit records on each page. If inclusive is set, a
// request with the query parameter since=ID also returns the record with this id.
func NewFeed(n, limit int, inclusive bool) *Feed {
	a := newAPI(n, limit)
	a.inclusive = inclusive
	return &Feed{a}
}

// Add appends n records.
func (f *Feed) Add(n int) { f.a.add(n) }

// All returns the records.
func (f *Feed) All() []string { return f.a.all() }

// Requests counts the requests.
func (f *Feed) Requests() int {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	return len(f.a.requests)
}

// ServeHTTP implements http.Handler.
func (f *Feed) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) { f.a.ServeHTTP(w, r) }
