package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/cli"
	"github.com/penstock-io/penstock/engine/connector/all"
	"github.com/penstock-io/penstock/engine/internal/lab/command"
)

// TestPages checks that every command has a man page, which names the flags --once and --json if
// the command has them. If the program man is installed, it must display the page of `penstock
// run`.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	man, err := exec.LookPath("man")
	if err != nil {
		t.Log("the pages are not shown: there is no man")
	}
	pages := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if !c.IsAvailableCommand() && c.HasParent() {
			return
		}
		pages++
		path := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{"once", "json"} {
			if c.Flags().Lookup(flag) != nil && !strings.Contains(string(text), "--"+flag) {
				t.Errorf("%s does not name --%s", path, flag)
			}
		}
		if man != "" && c.Name() == "run" {
			shown := exec.Command(man, "--warnings", "-l", path)
			shown.Env = append(os.Environ(), "LC_ALL=C", "MANPAGER=cat")
			if out, err := shown.CombinedOutput(); err != nil ||
				!strings.Contains(string(out), "SIGHUP") {
				t.Errorf("man %s: %v\n%s", path, err, out)
			}
		}
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(cli.Program{Components: all.Components(), Commands: command.Commands()}.Command())
	if pages < 20 {
		t.Errorf("%d pages", pages)
	}
}
