package admin

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// oneDelivery is a store with one waiting delivery, key a/b, and one that has ended, key done.
type oneDelivery struct{ changes []string }

func (o *oneDelivery) Delivery(_ context.Context, key string) (stream.Delivery, error) {
	switch key {
	case "a/b":
		return stream.Delivery{ID: 7, Key: key, State: "waiting"}, nil
	case "done":
		return stream.Delivery{ID: 8, Key: key, State: "done"}, nil
	}
	return stream.Delivery{}, stream.ErrNoDelivery
}

// DeliveryOf knows one owner, that of the delivery a/b.
func (o *oneDelivery) DeliveryOf(
	ctx context.Context, key string, owner stream.DeliveryOwner,
) (stream.Delivery, error) {
	if owner.Name != "merchant-1" || !slices.Equal(owner.Hosts, []string{"m1.example"}) || key != "a/b" {
		return stream.Delivery{}, stream.ErrNoDelivery
	}
	return o.Delivery(ctx, key)
}

func (o *oneDelivery) List(_ context.Context, f stream.DeliveryFilter) ([]stream.Delivery, error) {
	if f.State == "lost" {
		return nil, fmt.Errorf("%w: state", stream.ErrBadFilter)
	}
	return []stream.Delivery{{ID: f.After + 1, Host: f.Host, State: f.State}}, nil
}

func (o *oneDelivery) change(ctx context.Context, what, key string) (stream.Delivery, error) {
	d, err := o.Delivery(ctx, key)
	if err == nil && d.State == "done" {
		err = stream.ErrDeliveryEnded
	}
	if err == nil {
		o.changes = append(o.changes, what+" "+key)
	}
	return d, err
}

func (o *oneDelivery) Retry(ctx context.Context, key string) (stream.Delivery, error) {
	return o.change(ctx, "retry", key)
}

func (o *oneDelivery) Cancel(ctx context.Context, key string) (stream.Delivery, error) {
	return o.change(ctx, "cancel", key)
}

func TestDeliveries(t *testing.T) {
	store := &oneDelivery{}
	h := handler(t, Options{Token: "t", Deliveries: func() []DeliveryRoute {
		return []DeliveryRoute{{"paid/main", store}}
	}})
	for _, x := range []struct {
		method, path, token, origin string
		code                        int
		want                        string
	}{
		{"GET", "/a%2Fb", "t", "", 200, `"route":"paid/main","id":7,"key":"a/b"`},
		{"GET", "/a%2Fb", "", "", 401, "token"},
		{"GET", "/missing", "t", "", 404, "no delivery"},
		{"GET", "/a%2Fb?route=other/main", "t", "", 404, "no delivery"},
		{"GET", "/" + strings.Repeat("k", 257), "t", "", 400, "at most 256"},
		{"GET", "?host=h&state=waiting&after=41&limit=1", "t", "", 200, `"id":42`},
		{"GET", "?state=lost", "t", "", 400, "filter"},
		{"GET", "?limit=0", "t", "", 400, "limit"},
		{"GET", "?after=x", "t", "", 400, "limit"},
		{"GET", "", "", "", 401, "token"},
		{"POST", "/a%2Fb/retry", "t", "", 200, "waiting"},
		{"POST", "/a%2Fb/cancel", "t", "", 200, "waiting"},
		{"POST", "/a%2Fb/cancel", "", "", 401, "token"},
		{"POST", "/a%2Fb/cancel", "t", "http://evil.example", 403, ""},
		{"POST", "/done/retry", "t", "", 409, "ended"},
		{"GET", "/a%2Fb/cancel", "t", "", 405, ""},
	} {
		r := httptest.NewRequest(x.method, "http://127.0.0.1"+apiDeliveries+x.path, nil)
		if x.token != "" {
			r.Header.Set("Authorization", "Bearer "+x.token)
		}
		if x.origin != "" {
			r.Header.Set("Origin", x.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != x.code || !strings.Contains(w.Body.String(), x.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", x.method, x.path, w.Code, w.Body, x.code, x.want)
		}
		if strings.Contains(x.path, "limit=1") && w.Header().Get(headerNextAfter) != "42" {
			t.Errorf("the next page is after %q, want 42", w.Header().Get(headerNextAfter))
		}
	}
	if got := fmt.Sprint(store.changes); got != "[retry a/b cancel a/b]" {
		t.Errorf("changes %s", got)
	}
}

// TestReceivers checks that a receiver can read only its own deliveries with its token, one at a
// time. A request for a delivery of another receiver gets the same response as for an unknown
// delivery.
func TestReceivers(t *testing.T) {
	store := &oneDelivery{}
	h := handler(t, Options{
		Token:      "t",
		Deliveries: func() []DeliveryRoute { return []DeliveryRoute{{"paid/main", store}} },
		Owner: func(token string) (stream.DeliveryOwner, bool) {
			name, ok := strings.CutPrefix(token, "token of ")
			return stream.DeliveryOwner{Name: name, Hosts: []string{"m1.example"}}, ok
		},
	})
	for _, x := range []struct {
		method, path, token string
		code                int
	}{
		{"GET", "/api/v1/deliveries/a%2Fb", "token of merchant-1", 200},
		{"GET", "/api/v1/deliveries/done", "token of merchant-1", 404},
		{"GET", "/api/v1/deliveries/a%2Fb", "token of merchant-2", 404},
		{"GET", "/api/v1/deliveries/unknown", "token of merchant-2", 404},
		{"GET", "/api/v1/deliveries/a%2Fb", "another token", 401},
		{"GET", "/api/v1/deliveries/a%2Fb", "", 401},
		{"GET", "/api/v1/deliveries/done", "t", 200},
		{"GET", "/api/v1/deliveries/" + strings.Repeat("k", 257), "token of merchant-1", 400},
		{"GET", "/api/v1/deliveries", "token of merchant-1", 401},
		{"POST", "/api/v1/deliveries/a%2Fb/retry", "token of merchant-1", 401},
		{"POST", "/api/v1/deliveries/a%2Fb/cancel", "token of merchant-1", 401},
		{"GET", "/api/v1/status", "token of merchant-1", 401},
		{"GET", "/metrics", "token of merchant-1", 401},
	} {
		r := httptest.NewRequest(x.method, "http://127.0.0.1"+x.path, nil)
		if x.token != "" {
			r.Header.Set("Authorization", "Bearer "+x.token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != x.code {
			t.Errorf("%s %s with %q: %d %s, want %d", x.method, x.path, x.token, w.Code, w.Body, x.code)
		}
	}
	if len(store.changes) > 0 {
		t.Errorf("a receiver has changed %v", store.changes)
	}
}
