package endtoend

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFraming sends records that are not lines through the real program with both file sources, and
// checks that they arrive unchanged.
func TestFraming(t *testing.T) {
	t.Parallel()
	trace := "10:00 ERROR checkout\njava.lang.IllegalStateException: " +
		"none\n\tat shop.Cart.take(Cart.java:41)\nCaused by: x\n\t... 2 more"
	for _, c := range []struct {
		name, framing, text string
		want                []string
	}{
		{"stack traces", `{ by: multiline, start: '^\d\d:\d\d ', wait: 200ms }`,
			trace + "\n10:01 INFO a\n" + strings.Repeat("10:02 "+
				"INFO b\n", 5000),
			append([]string{trace, "10:01 INFO a"},
				slices.Repeat([]string{"10:02 INFO b"}, 5000)...)},
		{"NUL", `{ by: delimiter, delimiter: "\0" }`, "one\nrecord\x00another\x00",
			[]string{"one\nrecord", "another"}},
		{"csv", "{ by: csv }", "a,\"b\nc\"\nd,e\n", []string{"a,\"b\nc\"", "d,e"}},
		{"an array", "{ by: json }", "[\n {\"a\": 1},\n {\"b\": [2]}\n]\n",
			[]string{`{"a": 1}`, `{"b": [2]}`}},
	} {
		for _, source := range []string{
			"spool_dir: { path: ./in, finished: keep, quiet_period: 10ms, framing: %s }",
			`tail: { include: ["./in/*.log"], framing: %s }`,
		} {
			name, _, _ := strings.Cut(source, ":")
			t.Run(c.name+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				write(t, filepath.Join(dir, "in", "a.log"), c.text)
				config := write(t, filepath.Join(dir, "penstock.yaml"),
					"state: ./state\npipelines:\n  p:\n    source: { "+
						""+fmt.Sprintf(source, c.framing)+
						" }\n    sink: { file: { path: ./out.ndjson } }\n    batch: "+
						"{ bytes: 16KiB }\n")
				once(t, config)
				var got []string
				for line := range strings.Lines(string(read(t, filepath.Join(dir, "out.ndjson")))) {
					var r struct{ Message string }
					if err := json.Unmarshal([]byte(line), &r); err != nil {
						t.Fatalf("%q: %v", line, err)
					}
					got = append(got, r.Message)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("%d records, want %d; the first is %.80q", len(got), len(c.want),
						got[:min(1, len(got))])
				}
				if again := once(t, config); again.Pipelines[0].ReadRecords != 0 {
					t.Errorf("a second run read %d records", again.Pipelines[0].ReadRecords)
				}
			})
		}
	}
}
