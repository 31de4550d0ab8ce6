package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCommandLines checks the messages and exit codes of wrong command lines.
func TestCommandLines(t *testing.T) {
	path := testdata(t, "command_lines.golden")
	inFolder(t)
	if err := os.Mkdir("state", 0o700); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, line := range []string{
		"rn",
		"frobnicate",
		"run",
		"run a b",
		"adit --help",
		"help adit",
		"checkpoint sho --help",
		"run --onec penstock.yaml",
		"run --frobnicate penstock.yaml",
		"run -x penstock.yaml",
		"run --stall 5 penstock.yaml",
		"run --stall 0s --once penstock.yaml",
		"run --stall 5s penstock.yaml",
		"run --log-format xml penstock.yaml",
		"run --log-level loud penstock.yaml",
		"run nothing.yaml",
		"run .",
		"run wrong.yaml",
		"run --json wrong.yaml",
		"validate",
		"validate wrong.yaml",
		"validate --json wrong.yaml",
		"generate extra",
		"generate --format xml",
		"generate --lines -1",
		"generate --lines many",
		"generate --rate fast",
		"generate --rate 0/s",
		"generate --out missing/file.log",
		"checkpoint",
		"checkpoint sho",
		"checkpoint show",
		"checkpoint show wrong.yaml",
		"checkpoint show penstock.yaml",
		"checkpoint show nothing",
		"checkpoint reset penstock.yaml a/b c",
		"version now",
		"completion nope",
		"completion nope --help",
		"completion bash now",
	} {
		got := newProgram(newFake(), nil).try(t, strings.Fields(line)...)
		out := got.out
		if strings.HasPrefix(out, "{") {
			out = secondsOut.ReplaceAllString(out, `"seconds":0`)
		}
		fmt.Fprintf(&b, "$ penstock %s\nexit code %d\n", line, got.code)
		if out != "" {
			fmt.Fprintf(&b, "-- stdout\n%s", out)
		}
		if got.stderr != "" {
			fmt.Fprintf(&b, "-- stderr\n%s", got.stderr)
		}
		b.WriteString("\n")
	}
	golden(t, path, b.String())
}

// TestHelpTeaches checks that the help of every command has a description and an example.
func TestHelpTeaches(t *testing.T) {
	root := newProgram(newFake(), nil).root()
	visited := 0
	var lines []string
	for _, c := range root.Commands() {
		lines = append(lines, c.Name())
		for _, sub := range c.Commands() {
			lines = append(lines, c.Name()+" "+sub.Name())
		}
	}
	for _, line := range lines {
		if line == "help" || strings.HasPrefix(line, "completion") {
			continue
		}
		visited++
		got := newProgram(newFake(), nil).try(t, append(strings.Fields(line), "--help")...)
		if got.code != exitOK ||
			!strings.Contains(got.out, "Examples:\n  penstock "+strings.Fields(line)[0]) || len(got.out) < 300 {
			t.Errorf("penstock %s --help, code %d:\n%s", line, got.code, got.out)
		}
		for text := range strings.Lines(got.out) {
			if len(text) > 130 {
				t.Errorf("penstock %s --help: a line of %d characters: %s", line, len(text), text)
			}
		}
	}
	if visited < 6 {
		t.Errorf("visited %v", lines)
	}
}

func TestHelpOfTheProgram(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		got := newProgram(newFake(), nil).try(t, args...)
		if got.code != exitOK || !strings.Contains(got.out, "Exit codes") || got.stderr != "" {
			t.Errorf("penstock %v = %+v", args, got)
		}
	}
}
