package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/osfs"
)

// TestMessages runs the broken configs and inputs in testdata/messages*.txt with the real
// components, and compares the output with the exact messages. The working directory has an empty
// spool and some misplaced files. Mistakes within a config are tested in package config. A case in
// a file consists of its title, a line of ----, the config, a line of ----, and the output.
func TestMessages(t *testing.T) {
	for _, name := range []string{"messages.txt", "messages_push.txt"} {
		t.Run(name, func(t *testing.T) { checkMessages(t, testdata(t, name)) })
	}
}

func checkMessages(t *testing.T, script string) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n====\n")
	for i, block := range blocks {
		parts := strings.SplitN(block, "\n----\n", 3)
		if len(parts) < 2 {
			t.Fatalf("case %d has no line of ----", i+1)
		}
		got := said(t, parts[1])
		if len(parts) == 3 && got != parts[2] && !*update {
			t.Errorf("%s:\n--- got\n%s\n--- want\n%s", parts[0], got, parts[2])
		}
		if len(parts) == 2 && !*update {
			t.Errorf("%s: no message; run the test with -update and read what it wrote", parts[0])
		}
		blocks[i] = parts[0] + "\n----\n" + parts[1] + "\n----\n" + got
	}
	if *update {
		if err := os.WriteFile(script, []byte(strings.Join(blocks, "\n====\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// logTime matches the beginning of a log line of the default handler.
var logTime = regexp.MustCompile(`(?m)^time=\S+ `)

// said returns the exit code and the output on stdout and stderr, without log lines of level INFO.
func said(t *testing.T, config string) string {
	t.Helper()
	t.Chdir(wrongFolder(t))
	if err := os.WriteFile("penstock.yaml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TOKEN", "s3cr3t")
	got := realProgram().try(t, "run", "--once", "--stall", "2s", "penstock.yaml")
	var lines []string
	for line := range strings.Lines(logTime.ReplaceAllString(got.stderr, "")) {
		if !strings.HasPrefix(line, "level=INFO") {
			lines = append(lines, line)
		}
	}
	text := strings.TrimSuffix(got.out+strings.Join(lines, ""), "\n")
	return "exit code " + string(rune('0'+got.code)) + "\n" + processID.ReplaceAllString(text, "process N")
}

var processID = regexp.MustCompile(`process \d+`)

// wrongFolder creates a directory for the cases. It contains an empty spool, a file where a
// directory is expected, a directory where a file is expected, and a state directory that is in
// use.
func wrongFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"spool", "folder", "busy"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"file", "busy/checkpoint.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("not what is wanted\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	busy, err := osfs.New().OpenDir(filepath.Join(dir, "folder"))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := busy.Lock("penstock.lock", "penstock, process 1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
		if err := busy.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}
