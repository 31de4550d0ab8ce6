package pipeline

import (
	"reflect"
	"testing"

	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
)

// TestParkedCounts checks that the sum of all outcomes equals the number of records read. This must
// hold even while the sink's store already counts a record that the route does not count yet.
func TestParkedCounts(t *testing.T) {
	base := stream.ParkedCounts{Waiting: 10, Delivered: 100, Dead: 5, Cancelled: 1}
	for name, c := range map[string]struct {
		taken int64
		now   stream.ParkedCounts
		want  status.Route
	}{
		"at the start": {0, base, status.Route{ReadRecords: 13, Parked: 10}},
		"none sent": {
			5, stream.ParkedCounts{Waiting: 15, Delivered: 100, Dead: 5, Cancelled: 1},
			status.Route{ReadRecords: 18, Parked: 15},
		},
		"all ends": {
			5, stream.ParkedCounts{Waiting: 9, Delivered: 103, Dead: 7, Cancelled: 2},
			status.Route{ReadRecords: 18, Parked: 9, Dead: 2, Dropped: 1, Delivered: 3},
		},
		"the store is ahead": {
			2, stream.ParkedCounts{Waiting: 15, Delivered: 100, Dead: 5, Cancelled: 1},
			status.Route{ReadRecords: 15, Parked: 12},
		},
	} {
		s := status.Route{ReadRecords: c.taken + 3, Delivered: c.taken, InFlight: 2, Waiting: 1}
		addParked(&s, base, c.now)
		if s.ReadRecords != s.Delivered+s.Dead+s.Dropped+s.InFlight+s.Waiting+s.Parked {
			t.Errorf("%s: %+v does not add up", name, s)
		}
		got := status.Route{
			ReadRecords: s.ReadRecords, Parked: s.Parked, Dead: s.Dead, Dropped: s.Dropped, Delivered: s.Delivered,
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
