package pipeline

import (
	"reflect"
	"testing"

	"github.com/penstock-io/penstock/engine/status"
)

// TestAddPast checks that no count of attempts falls when a route restarts.
func TestAddPast(t *testing.T) {
	now := status.Route{
		Attempts: 1, Redelivered: 2, RedeliveryWaited: 3, Hedged: 4, Poisoned: 5, Duplicates: 6,
		Workers: []status.Worker{{Name: "a", Delivered: 7, Failed: 8, TimedOut: 9, Throttled: 10, Late: 11}},
	}
	want := status.Route{
		Attempts: 2, Redelivered: 4, RedeliveryWaited: 6, Hedged: 8, Poisoned: 10, Duplicates: 12,
		Workers: []status.Worker{{Name: "a", Delivered: 14, Failed: 16, TimedOut: 18, Throttled: 20, Late: 22}},
	}
	past := now
	past.Workers = append([]status.Worker{{Name: "removed", Delivered: 1}}, now.Workers...)
	addPast(&now, past)
	if !reflect.DeepEqual(now, want) {
		t.Errorf("status\n%+v, want\n%+v", now, want)
	}
}
