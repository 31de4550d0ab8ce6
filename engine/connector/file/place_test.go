package file

import "testing"

func TestPlace(t *testing.T) {
	for _, p := range []place{{}, {1, 2, 3}, {1<<64 - 1, -1 << 63, 1<<63 - 1}} {
		if got, err := parsePlace(p.String()); err != nil || got != p {
			t.Errorf("parsePlace(%q) = %v, %v", p.String(), got, err)
		}
	}
	for _, s := range []string{"", "1", "2 1 2 3", "1 1 2 -3", "1 1 2 3 4", "1 x 2 3", "1  2 3"} {
		if p, err := parsePlace(s); err == nil {
			t.Errorf("parsePlace(%q) = %v, want an error", s, p)
		}
	}
}
