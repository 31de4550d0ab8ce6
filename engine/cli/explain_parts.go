package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/penstock-io/penstock/engine/status"
)

// explainParts prints the restarts of a route and of its parts, each with the reason. If the route
// has stopped, it prints the error. If worker is not "", it omits all parts except the worker with
// this name and its child process, which has the same name.
func explainParts(out io.Writer, s *status.Status, route, worker string) error {
	pipeline, name, _ := strings.Cut(route, "/")
	node := s.Tree.Find(pipeline, name)
	if node == nil {
		return nil
	}
	var b strings.Builder
	for i := range s.Routes {
		if r := &s.Routes[i]; r.Pipeline == pipeline && r.Name == name && r.Health == "stopped" {
			fmt.Fprintf(&b, "the route has stopped: %s\n", printable(firstLineOf(r.Error)))
		}
	}
	switch {
	case node.State == "waiting":
		fmt.Fprintf(&b, "the route has failed and restarts in %s: "+
			"%s\n", seconds(node.Next), printable(node.Reason))
	case node.Restarts > 0:
		fmt.Fprintf(&b, "the route %s\n", again(node))
	}
	partLines(&b, node, "", worker)
	_, err := io.WriteString(out, b.String())
	return err
}

func partLines(b *strings.Builder, c *status.Child, path, worker string) {
	for i := range c.Children {
		below := &c.Children[i]
		if below.Restarts > 0 && (worker == "" || below.Name == worker) {
			fmt.Fprintf(b, "%s %s\n", printable(path+below.Name), again(below))
		}
		partLines(b, below, path+below.Name+"/", worker)
	}
}

func again(c *status.Child) string {
	return fmt.Sprintf("was restarted %s, last %s ago: %s", count(int64(c.Restarts), "time"),
		seconds(c.Seconds), printable(c.Reason))
}

func firstLineOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
