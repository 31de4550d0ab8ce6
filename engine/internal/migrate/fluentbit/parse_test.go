package fluentbit

import (
	"strings"
	"testing"
)

// TestVariables checks that variables hold for the whole file, and are expanded once.
func TestVariables(t *testing.T) {
	c, err := parseClassic("@SET b=2\n@SET a=${b}\n[INPUT]\nPath x${a}y${b}z${c}${d}${\n@SET c=3\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.inputs[0].Text("path"), "x${b}y2z3${d}${"; got != want {
		t.Errorf("path %q, want %q", got, want)
	}
}

// TestLargeVariables checks that a small file cannot expand to a text that does not fit into memory.
func TestLargeVariables(t *testing.T) {
	set := "@SET a=" + strings.Repeat("x", 1<<20) + "\n[INPUT]\n"
	for _, text := range []string{
		set + "Path " + strings.Repeat("${a}", 1<<20) + "\n",
		set + strings.Repeat("Path ${a}\n", 1<<10),
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), "is larger than") {
			t.Errorf("%v, want an error about the size", err)
		}
	}
}
