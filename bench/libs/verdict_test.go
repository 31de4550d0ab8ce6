package libs

import (
	"fmt"
	"os"
	"testing"
)

// summary collects a line per target, for the end of the run.
var summary []string

// verdict notes whether a target is held.
func verdict(t *testing.T, held bool, format string, args ...any) {
	t.Helper()
	line := "held    "
	if !held {
		line = "MISSED  "
	}
	line += fmt.Sprintf(format, args...)
	summary = append(summary, line)
	if !held {
		t.Error(line)
	}
}

// TestMain prints the summary at the end, and appends it to the file named by PENSTOCK_SUMMARY.
func TestMain(m *testing.M) {
	code := m.Run()
	var text string
	for _, line := range summary {
		text += line + "\n"
	}
	fmt.Print("\n", text)
	if name := os.Getenv("PENSTOCK_SUMMARY"); name != "" {
		if err := appendTo(name, text); err != nil {
			fmt.Fprintln(os.Stderr, "summary:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		_ = f.Close() // the write's error is more specific
		return err
	}
	return f.Close()
}
