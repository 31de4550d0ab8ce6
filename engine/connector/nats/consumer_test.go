package nats

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestIsRecreated checks isRecreated for a consumer that was opened an hour after its creation. The
// server may report the time at which another replica of the same consumer was created, which is
// near the first creation. Only a time near or after the opening means that the consumer was
// recreated.
func TestIsRecreated(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	opened := created.Add(time.Hour)
	for _, c := range []struct {
		name string
		now  time.Time
		want bool
	}{
		{"the same consumer", created, false},
		{"an earlier replica of another server", created.Add(-8 * time.Millisecond), false},
		{"a later replica of another server", created.Add(8 * time.Millisecond), false},
		{"recreated", opened.Add(time.Second), true},
		{"recreated at a server whose clock is late", opened.Add(-30 * time.Second), true},
	} {
		opening := &jetstream.ConsumerInfo{Created: created, TimeStamp: opened}
		if got := isRecreated(opening, &jetstream.ConsumerInfo{Created: c.now}); got != c.want {
			t.Errorf("%s: isRecreated = %v, want %v", c.name, got, c.want)
		}
	}
}
