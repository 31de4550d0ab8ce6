package table

import (
	"testing"
	"time"
)

// TestLag checks that a lag of 0 differs from no lag, for which MySQL has a default.
func TestLag(t *testing.T) {
	for _, c := range []struct {
		name          string
		mysql, sqlite string
		lag           *time.Duration
		want          time.Duration
	}{
		{"mysql, not set", "user@tcp(host)/shop", "", nil, 2 * time.Second},
		{"mysql, 0", "user@tcp(host)/shop", "", new(time.Duration), 0},
		{"mysql, 5s", "user@tcp(host)/shop", "", new(5 * time.Second), 5 * time.Second},
		{"other, not set", "", "shop.db", nil, 0},
		{"other, 5s", "", "shop.db", new(5 * time.Second), 5 * time.Second},
	} {
		o := DefaultOptions()
		o.Table, o.MySQL, o.SQLite, o.Lag = "t", c.mysql, c.sqlite, c.lag
		if err := o.Validate(); err != nil || *o.Lag != c.want {
			t.Errorf("%s: %v, %v, want %v", c.name, *o.Lag, err, c.want)
		}
	}
}
