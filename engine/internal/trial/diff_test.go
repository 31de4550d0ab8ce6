package trial

import (
	"fmt"
	"testing"
)

func TestDiff(t *testing.T) {
	for _, c := range []struct{ before, after, want string }{
		{`{"a":1}`, `{"a":1}`, "[]"},
		{`{"message":"x"}`, `{"b":1,"a":{"c":[]}}`, `[- message + b: 1 + a: {"c":[]}]`},
		{`{"a":"1","b":2}`, `{"b":2,"a":1}`, `[~ a: "1" -> 1]`},
		{`{"a":null}`, `{"a":""}`, `[~ a: null -> ""]`},
		{`[1]`, `{"a":1}`, "[+ a: 1]"},
		{`{"a":1`, `no JSON`, "[]"},
	} {
		if got := fmt.Sprint(Diff(c.before, c.after)); got != c.want {
			t.Errorf("%s to %s: %s, want %s", c.before, c.after, got, c.want)
		}
	}
}
