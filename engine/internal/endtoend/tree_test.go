package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/status"
)

// childAt returns the child at a path of names beneath c, or nil; the last name may be a prefix.
func childAt(c *status.Child, path ...string) *status.Child {
	for _, name := range path {
		var found *status.Child
		for i := range c.Children {
			if c.Children[i].Name == name ||
				found == nil && strings.HasPrefix(c.Children[i].Name, name) {
				found = &c.Children[i]
			}
		}
		if c = found; c == nil {
			return nil
		}
	}
	return c
}

// kill9 kills the process shown beneath a child in the tree.
func kill9(t *testing.T, c *status.Child) {
	t.Helper()
	_, number, _ := strings.Cut(childAt(c, "python3, process ").Name, "process ")
	pid, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTreeOfProcess checks the tree of a running process. The tree contains the children of a sink
// and of a processor, with their process ids. It shows that a killed child was restarted. A route
// whose folder is missing waits, and continues when the folder exists.
func TestTreeOfProcess(t *testing.T) {
	t.Parallel()
	python(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "a.log"), "one two\nthree\n")
	for _, script := range []string{"exec-storm/words.py", "exec-ndjson/worker.py"} {
		write(t, filepath.Join(dir, filepath.Base(script)),
			string(read(t, filepath.Join(examples(t), script))))
	}
	write(t, filepath.Join(dir, "take.py"),
		"import sys\nfor _ in sys.stdin: print('{\"delivered\":true}', flush=True)\n")
	address := connectortest.FreeAddress(t)
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
admin: %s
pipelines:
  words:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    processors: [{ exec: { command: [python3, words.py], protocol: storm, fields: [word, count], env: [PATH, HOME] } }]
    sink: { exec: { command: [python3, take.py], protocol: ndjson, workers: 2, env: [PATH, HOME] } }
  late:
    source: { spool_dir: { path: ./missing, finished: keep, quiet_period: 10ms } }
    sink: { drop: {} }
`, address))
	start(t, "run", config)
	var s status.Status
	when := func(ok func(tree *status.Child) bool) {
		t.Helper()
		until(t, "http://"+address+"/api/v1/status", func(_ int, text string) bool {
			s = status.Status{}
			return json.Unmarshal([]byte(text), &s) == nil && s.Tree != nil && ok(s.Tree)
		})
	}
	worker := []string{"words", "main", "children", "worker-2"}
	bolt := []string{"words", "main", "processors", "processor-0", "exec", "child"}
	has := func(tree *status.Child, path []string) bool {
		c := childAt(tree, path...)
		return c != nil && c.State == "running" && childAt(c, "python3, process ") != nil
	}
	when(func(tree *status.Child) bool { return has(tree, worker) && s.Routes[0].Delivered == 2 })
	kill9(t, childAt(s.Tree, worker...))
	when(func(tree *status.Child) bool {
		return has(tree, worker) && childAt(tree, worker...).Restarts == 1
	})
	if c := childAt(s.Tree, worker...); !strings.Contains(c.Reason, "signal: killed") ||
		c.Since.IsZero() {
		t.Errorf("of a child that was killed: %+v", c)
	}
	if has(s.Tree, bolt) { // the only batch may have gone to the other processor
		kill9(t, childAt(s.Tree, bolt...))
		when(func(tree *status.Child) bool {
			return has(tree, bolt) && childAt(tree, bolt...).Restarts == 1
		})
	}
	when(func(tree *status.Child) bool {
		late := childAt(tree, "late", "main")
		return late != nil && late.State == "waiting" && late.Restarts > 0 &&
			strings.Contains(late.Reason, "does not exist") && !s.Ready
	})
	out, err := exec.Command(programOf(t), "status", "--tree", config).Output()
	if err == nil || !strings.Contains(string(out), "does not exist") ||
		!strings.Contains(string(out), "signal: killed") {
		t.Errorf("status --tree: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	write(t, filepath.Join(dir, "missing", "b.log"), "here\n")
	when(func(*status.Child) bool { return s.Routes[1].Delivered == 1 && s.Ready })
}
