//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDeadSpecialFile checks that no command waits for ever, or reports success, if a FIFO or a
// directory has the name of the file of dead letters.
func TestDeadSpecialFile(t *testing.T) {
	inFolder(t)
	saved(t, "state")
	writeFile(t, "penstock.yaml", "pipelines: { access: { source: { tail: { include: [\"*.log\"] } },"+
		" sink: { drop: } } }\n")
	letters := filepath.Join("state", "dead", "access.main.ndjson")
	for what, create := range map[string]func() error{
		"FIFO":      func() error { return syscall.Mkfifo(letters, 0o600) },
		"directory": func() error { return os.Mkdir(letters, 0o700) },
	} {
		if err := os.MkdirAll(filepath.Dir(letters), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := create(); err != nil {
			t.Fatal(err)
		}
		for _, args := range []string{"dead list", "dead show", "dead replay", "dead discard --all",
			"checkpoint reset --partition f1 --route access/main", "audit"} {
			got := realProgram().try(t, append(strings.Fields(args), "penstock.yaml")...)
			if got.code != exitUnfinished || !strings.Contains(got.out+got.stderr, "it is a "+what) {
				t.Errorf("%s with a %s: %+v", args, what, got)
			}
		}
		if err := os.Remove(letters); err != nil {
			t.Fatal(err)
		}
	}
}
