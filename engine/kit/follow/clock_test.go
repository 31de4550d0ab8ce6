package follow

import (
	"testing"
	"time"
)

func TestQuiet(t *testing.T) {
	const settle, s = time.Second, time.Second
	wall := int64(1_700_000_000_000_000_000)
	at := func(d time.Duration) int64 { return wall + int64(d) } // wall time at monotonic time d
	for _, tt := range []struct {
		name  string
		steps []time.Duration // a step of the wall clock before each look, with a look every 100 ms
		mtime time.Duration   // relative to the first wall
		since time.Duration
		skew  time.Duration
		want  bool
	}{
		{"an old file, at first sight", []time.Duration{0}, -time.Hour, 0, 0, true},
		{"a young file", []time.Duration{0}, -settle / 2, 0, 0, false},
		{"a young file that was seen long enough", make([]time.Duration, 12), 0, 0, 0, true},
		{"a time in the future", []time.Duration{0, 0}, time.Hour, 0, 0, false},
		{"a time in the future, seen long enough", make([]time.Duration, 12), time.Hour, 0, 0, true},
		{"stepped forward", []time.Duration{0, time.Hour}, 0, 0, 0, false},
		{
			"stepped forward, then time to see", append([]time.Duration{0, time.Hour}, make([]time.Duration, 11)...),
			0, 12 * 100 * time.Millisecond, 0, true,
		},
		{"stepped back, an old file", []time.Duration{0, -time.Hour}, -2 * time.Hour, 100 * time.Millisecond, 0, false},
		{"the file system's clock is behind", []time.Duration{0}, -5 * s, 0, -5 * s, false},
		{"the file system's clock is behind, an old file", []time.Duration{0}, -7 * s, 0, -5 * s, true},
		{"the file system's clock is another one", []time.Duration{0}, -time.Hour, 0, -48 * time.Hour, false},
	} {
		c := clock{settle: settle}
		c.calibrate(wall, at(tt.skew))
		var mono, stepped time.Duration
		for i, step := range tt.steps {
			mono, stepped = time.Duration(i)*100*time.Millisecond, stepped+step
			c.observe(mono, at(mono+stepped))
		}
		if got := c.quietAt(mono, at(mono+stepped), at(tt.mtime), tt.since) <= mono; got != tt.want {
			t.Errorf("%s: quiet = %v, want %v", tt.name, got, tt.want)
		}
	}
}
