package http_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/http"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// TestReasonsCanBeGrouped checks that two refusals of a kind have the same reason, although the
// receiver's texts differ by record.
func TestReasonsCanBeGrouped(t *testing.T) {
	refusals := func(i int) []error {
		status := httpsink.StatusError{Method: "POST", Endpoint: "http://h/", Status: 422,
			Answer: fmt.Appendf(nil, "error at byte %d", i)}
		return []error{&stream.Rejected{Err: &status}, &http.NotAcceptedError{StatusError: status, Condition: "false"}}
	}
	a, b := refusals(1000), refusals(2000)
	for i := range a {
		one, ok := errors.AsType[stream.Grouped](a[i])
		two, also := errors.AsType[stream.Grouped](b[i])
		if !ok || !also {
			t.Errorf("%v is not grouped", a[i])
			continue
		}
		reason, detail := one.Group()
		if same, other := two.Group(); reason != same || detail == other {
			t.Errorf("%v has the reason %q and the detail %q; %v the reason %q", a[i], reason, detail, b[i], same)
		}
	}
}
