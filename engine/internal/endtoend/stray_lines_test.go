package endtoend

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
)

// TestStrayLines runs the program with child processes that write an extra line in addition to the
// lines of the protocol, for example a banner at their start. Either every record must arrive with
// its own text, or the exit code must report an error. In the case `a banner of the first
// children`, only two children write a banner, because three such children in a row would stop a
// processor.
func TestStrayLines(t *testing.T) {
	t.Parallel()
	const echo = `while IFS= read -r l; do echo "$l"; done`
	for _, c := range []struct {
		name, script string
		ok           bool
	}{
		{"a banner of the first children",
			`mkdir first$$; [ "$(ls -d first* | wc -l)" -gt 2 ] || echo hello; ` + echo, true},
		{"a late print", `while IFS= read -r l; do echo "$l"; ` +
			`case $l in *777) mkdir said$l 2>/dev/null && echo print;; esac; done`, true},
		{"a banner of every child", `echo hello; ` + echo, false},
		{"a line at the end", echo + `; echo bye`, false},
	} {
		dir := t.TempDir()
		var text bytes.Buffer
		for i := range 20_000 {
			fmt.Fprintf(&text, "line %06d\n", i)
		}
		write(t, filepath.Join(dir, "spool", "a.log"), text.String())
		config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  stray:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    processors: [{ exec: { command: [sh, -c, %q], protocol: lines, env: [PATH] } }]
    sink: { file: { path: ./out.txt, format: raw } }
    batch: { records: 500 }
`, c.script))
		res, err := tryOnce(t, config)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want success %v", c.name, err, c.ok)
		}
		if !c.ok {
			continue
		}
		if out := read(t, filepath.Join(dir, "out.txt")); !bytes.Equal(out, text.Bytes()) {
			t.Errorf("%s: %d bytes of %d arrived, or others: %+v", c.name, len(out),
				text.Len(), res)
		}
	}
}
