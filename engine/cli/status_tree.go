package cli

import (
	"io"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/table"
	"github.com/penstock-io/penstock/engine/status"
)

// statusTree returns the supervision tree of a process as text, with one line for each part. Lines
// are cut to the given width, in characters. A width of 0 means no limit.
func statusTree(s *status.Status, width int) string {
	if s.Tree == nil {
		return statusHead(s) + "this version of the process does not report its supervised parts\n"
	}
	rows := [][]string{{"", "state", "for", "restarts", "last reason"}}
	treeRows(&rows, s.Tree, "", "")
	var b strings.Builder
	b.WriteString(statusHead(s))
	for line := range strings.Lines(table.Columns(rows, "llrrl")) {
		line = strings.TrimSuffix(line, "\n")
		if width > 0 {
			line = cutTo(line, width)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func treeRows(rows *[][]string, c *status.Child, first, rest string) {
	restarts, reason := strconv.FormatUint(c.Restarts, 10), printable(c.Reason)
	if c.Restarts == 0 {
		restarts = "-"
	}
	if c.State == "waiting" {
		if reason != "" {
			reason = ": " + reason
		}
		reason = "starts again in " + seconds(c.Next) + reason
	}
	*rows = append(*rows, []string{first + printable(c.Name), c.State, seconds(c.Seconds), restarts, reason})
	for i := range c.Children {
		if i == len(c.Children)-1 {
			treeRows(rows, &c.Children[i], rest+"└─ ", rest+"   ")
		} else {
			treeRows(rows, &c.Children[i], rest+"├─ ", rest+"│  ")
		}
	}
}

// widthOf returns the width of the terminal w in characters, or 0 if w is not a terminal.
func widthOf(w io.Writer) int {
	if s := terminal(w); s != nil {
		return s.width()
	}
	return 0
}
