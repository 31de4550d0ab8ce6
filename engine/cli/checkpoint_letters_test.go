package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCheckpointChangeOfLetters changes progress so that records with replayed dead letters are
// delivered again. The letters must then count as not replayed. If such a record is refused again,
// it gets no second letter, so no list would show it otherwise.
func TestCheckpointChangeOfLetters(t *testing.T) {
	for name, c := range map[string]struct {
		args     []string
		replayed int
	}{
		"reset of the route":     {[]string{"reset", "state", "p/main"}, 0},
		"reset by name":          {[]string{"reset", "state", "p/main", "--partition", "%name"}, 0},
		"reset by id":            {[]string{"reset", "state", "p/main", "--partition", "%id"}, 0},
		"set back by name":       {[]string{"set", "state", "--partition", "%name", "--watermark", "3"}, 0},
		"set back by id":         {[]string{"set", "state", "--partition", "%id", "--watermark", "3"}, 0},
		"set to the same":        {[]string{"set", "state", "--partition", "%id", "--watermark", "13"}, 2},
		"set forward by name":    {[]string{"set", "state", "--partition", "%name", "--watermark", "99"}, 2},
		"reset of the other one": {[]string{"reset", "state", "p/main", "--partition", "%other"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			config := "state: ./state\npipelines: { p: { source: { tail: { include: [./*.log] } }, " +
				"processors: [%s], sink: { drop: } } }\n"
			writeFile(t, "good.yaml", fmt.Sprintf(config, ""))
			writeFile(t, "bad.yaml", fmt.Sprintf(config, "{ parse: { format: json } }"))
			writeFile(t, "a.log", "{}\nx\n{}\ny\n{}\n")
			writeFile(t, "b.log", "{}\n")
			for _, args := range []string{"run --once bad.yaml", "dead replay good.yaml"} {
				got := realProgram().try(t, strings.Fields(args)...)
				if got.code != 0 {
					t.Fatalf("%s: exit code %d\n%s%s", args, got.code, got.out, got.stderr)
				}
			}
			shown := realProgram().try(t, "checkpoint", "show", "--json", "state").out
			ids := map[string]string{}
			for line := range strings.Lines(shown) {
				_, rest, _ := strings.Cut(line, `"partition":"`)
				id, rest, _ := strings.Cut(rest, `","name":"`)
				file, _, _ := strings.Cut(rest, `"`)
				if !strings.HasPrefix(id, "letter.") {
					ids[file] = id
				}
			}
			args := []string{"checkpoint"}
			for _, arg := range c.args {
				arg = strings.NewReplacer("%name", "a.log", "%id", ids["a.log"], "%other",
					ids["b.log"]).Replace(arg)
				args = append(args, arg)
			}
			if args[1] == "set" {
				args = append(args, "--route", "p/main")
			}
			if got := realProgram().try(t, args...); got.code != 0 ||
				!strings.Contains(got.out, "changed the progress of") {
				t.Fatalf("%q: exit code %d\n%s%s", args, got.code, got.out, got.stderr)
			}
			want := fmt.Sprintf("2 dead letters, %d of them replayed", c.replayed)
			if got := realProgram().try(t, "dead", "list", "good.yaml"); !strings.Contains(got.out,
				want) {
				t.Errorf("after %q: %s\nwant %s", args, got.out, want)
			}
			if _, err := os.Stat("state/checkpoint.log.before-1"); err != nil {
				t.Error(err)
			}
		})
	}
}
