package elasticsearch

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// TestReasonsCanBeGrouped checks that refusals of the same kind have the same reason. The
// receiver's texts differ by record, and are in the details.
func TestReasonsCanBeGrouped(t *testing.T) {
	refusals := func(i int) []error {
		parsing := fmt.Sprintf("mapper_parsing_exception: failed to parse document %d", i)
		return []error{
			&itemError{location: "POST http://h/", status: 400, reason: parsing},
			&itemError{location: "POST http://h/", status: 400,
				reason: fmt.Sprintf("document %d: wrong", i)},
		}
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
		same, other := two.Group()
		if reason != same || strings.Contains(reason, "1000") || !strings.Contains(detail, "1000") || detail == other {
			t.Errorf("%v has the reason %q and the detail %q; %v the reason %q", a[i], reason, detail, b[i], same)
		}
	}
}
