package config

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the messages that came out into testdata/messages")

// leastMessages is the minimum number of cases in the scripts.
const leastMessages = 40

// TestMessages checks the scripts in testdata/messages: broken configs with their exact messages.
// The cases of a script are separated by a line of ====. A case consists of its title, a line of
// ----, the config, a line of ----, and the message.
func TestMessages(t *testing.T) {
	scripts, err := filepath.Glob(absolute(t, "testdata/messages/*.txt"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in testdata/messages: %v", err)
	}
	total := 0
	for _, script := range scripts {
		total += runScript(t, script)
	}
	if total < leastMessages {
		t.Errorf("%d broken configs in all scripts; want at least %d", total, leastMessages)
	}
}

func runScript(t *testing.T, script string) (cases int) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir) // so that messages name the file alone
	blocks := strings.Split(string(text), "\n====\n")
	for i, block := range blocks {
		parts := strings.SplitN(block, "\n----\n", 3)
		if len(parts) < 2 {
			t.Fatalf("%s: case %d has no line of ----", script, i+1)
		}
		title, config := parts[0], unescape(parts[1])
		got := messageOf(t, config)
		if len(parts) == 3 && got != strings.TrimRight(parts[2], "\n") && !*update {
			t.Errorf("%s: %s:\n--- got\n%s\n--- want\n%s", filepath.Base(script), title, got,
				parts[2])
		}
		if len(parts) == 2 && !*update {
			t.Errorf("%s: %s: no message; run the test with -update and read what it wrote",
				filepath.Base(script), title)
		}
		blocks[i] = title + "\n----\n" + parts[1] + "\n----\n" + got
	}
	t.Chdir(filepath.Dir(filepath.Dir(dir)))
	if *update {
		if err := os.WriteFile(script, []byte(strings.Join(blocks, "\n====\n")+"\n"),
			0o666); err != nil {
			t.Fatal(err)
		}
	}
	return len(blocks)
}

// unescape replaces the escapes \t, \r, \x01 and \xff in a script with their characters, which an
// editor might not preserve.
func unescape(config string) string {
	return strings.NewReplacer(`\t`, "\t", `\x01`, "\x01", `\xff`, "\xff", `\r`,
		"\r").Replace(config)
}

func messageOf(t *testing.T, config string) string {
	t.Helper()
	if err := os.WriteFile("penstock.yaml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOST": "example.org", "EMPTY": "", "COUNT": "many",
		"SECRET": "hunter2"}
	_, err := Load("penstock.yaml",
		LoadOptions{Components: testComponents(), Env: func(name string) (string, bool) {
			v, ok := env[name]
			return v, ok
		}})
	if err == nil {
		return "(accepted)"
	}
	return err.Error()
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
