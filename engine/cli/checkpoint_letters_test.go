package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// twoBadRecords writes into a new current directory a.log, in which two of five records are not
// JSON, and configs with the given source. The route of bad.yaml refuses these records, and the
// route of good.yaml accepts all. The returned function runs a command, which must succeed.
func twoBadRecords(t *testing.T, source string) (run func(args ...string) string) {
	t.Helper()
	t.Chdir(t.TempDir())
	config := "state: ./state\npipelines: { p: { source: { " + source + " }, processors: [%s], " +
		"sink: { drop: } } }\n"
	writeFile(t, "good.yaml", fmt.Sprintf(config, ""))
	writeFile(t, "bad.yaml", fmt.Sprintf(config, "{ parse: { format: json } }"))
	writeFile(t, "a.log", "{}\nx\n{}\ny\n{}\n")
	return func(args ...string) string {
		t.Helper()
		got := realProgram().try(t, args...)
		if got.code != 0 {
			t.Fatalf("%q: exit code %d\n%s%s", args, got.code, got.out, got.stderr)
		}
		return got.out
	}
}

// TestCheckpointChangeOfLetters changes progress so that records with replayed dead letters are
// delivered again. The letters must then count as not replayed. A record that is refused again gets
// no second letter, so a list shows it only if its first letter counts as not replayed.
func TestCheckpointChangeOfLetters(t *testing.T) {
	for name, c := range map[string]struct {
		args     []string
		replayed int
	}{
		"reset of the route":      {[]string{"reset", "state", "p/main"}, 0},
		"reset by name":           {[]string{"reset", "state", "p/main", "--partition", "%name"}, 0},
		"reset by id":             {[]string{"reset", "state", "p/main", "--partition", "%id"}, 0},
		"set back by name":        {[]string{"set", "state", "--partition", "%name", "--watermark", "3"}, 0},
		"set back by id":          {[]string{"set", "state", "--partition", "%id", "--watermark", "3"}, 0},
		"set between the records": {[]string{"set", "state", "--partition", "%id", "--watermark", "5"}, 1},
		"set to the same":         {[]string{"set", "state", "--partition", "%id", "--watermark", "13"}, 2},
		"set forward by name":     {[]string{"set", "state", "--partition", "%name", "--watermark", "99"}, 2},
		"reset of the other one":  {[]string{"reset", "state", "p/main", "--partition", "%other"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			run := twoBadRecords(t, "tail: { include: [./*.log] }")
			writeFile(t, "b.log", "{}\n")
			run("run", "--once", "bad.yaml")
			run("dead", "replay", "good.yaml")
			ids := partitionIDs(t)
			args := []string{"checkpoint"}
			for _, arg := range c.args {
				arg = strings.NewReplacer("%name", "a.log", "%id", ids["a.log"], "%other",
					ids["b.log"]).Replace(arg)
				args = append(args, arg)
			}
			if args[1] == "set" {
				args = append(args, "--route", "p/main")
			}
			if got := run(args...); !strings.Contains(got, "changed the progress of") {
				t.Fatalf("%q: %s", args, got)
			}
			want := fmt.Sprintf("2 dead letters, %d of them replayed", c.replayed)
			if got := run("dead", "list", "good.yaml"); !strings.Contains(got, want) {
				t.Errorf("after %q: %s\nwant %s", args, got, want)
			}
			if _, err := os.Stat("state/checkpoint.log.before-1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDiscardAfterCheckpointSet discards dead letters that a replay has settled, and that count as
// not replayed since progress was set back. The sink appends to a file, so the checkpoint has two
// layers. The letters must stay discarded after the next run.
func TestDiscardAfterCheckpointSet(t *testing.T) {
	run := twoBadRecords(t, "tail: { include: [./*.log] }")
	for _, name := range []string{"good.yaml", "bad.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, name, strings.Replace(string(text), "drop:", "file: { path: ./out }", 1))
	}
	run("run", "--once", "bad.yaml")
	run("dead", "replay", "good.yaml")
	run("checkpoint", "set", "state", "--route", "p/main", "--partition", "a.log", "--watermark", "0")
	want := "2 dead letters: 2 discarded, 0 had been replayed"
	if got := run("dead", "discard", "--all", "good.yaml"); !strings.HasPrefix(got, want) {
		t.Fatalf("discard: %s", got)
	}
	run("run", "--once", "good.yaml")
	if got := run("dead", "list", "good.yaml"); got != "2 dead letters, 2 of them replayed\n" {
		t.Errorf("after the next run: %s", got)
	}
}

// partitionIDs returns the ids of the partitions in the checkpoint, by name. It omits dead letters,
// which a checkpoint also stores as partitions.
func partitionIDs(t *testing.T) map[string]string {
	ids := map[string]string{}
	shown := realProgram().try(t, "checkpoint", "show", "--json", "state").out
	for line := range strings.Lines(shown) {
		_, rest, _ := strings.Cut(line, `"partition":"`)
		id, rest, _ := strings.Cut(rest, `","name":"`)
		file, _, _ := strings.Cut(rest, `"`)
		if !strings.HasPrefix(id, "letter.") {
			ids[file] = id
		}
	}
	return ids
}

// TestCheckpointResetOfReusedName resets the progress of a file. This must not select the dead
// letters of an earlier file with the same name, because the records of that file are not delivered
// again. The test also runs with letters of records that a first replay has refused again.
func TestCheckpointResetOfReusedName(t *testing.T) {
	for _, refusedAgain := range []bool{false, true} {
		run := twoBadRecords(t, `spool_dir: { path: ., include: ["*.log"], quiet_period: 1ms }`)
		run("run", "--once", "bad.yaml")
		all := 2
		if refusedAgain {
			realProgram().try(t, "dead", "replay", "bad.yaml")
			all = 4
		}
		run("dead", "replay", "good.yaml")
		first := partitionIDs(t)["a.log"]
		writeFile(t, "new", "{\"second\":1}\n{\"second\":2}\n")
		if err := os.Rename("new", "a.log"); err != nil {
			t.Fatal(err)
		}
		run("run", "--once", "good.yaml")
		second := partitionIDs(t)["a.log"]
		if first == second {
			t.Fatalf("both files are the partition %s", first)
		}
		run("checkpoint", "reset", "good.yaml", "p/main", "--partition", second)
		want := fmt.Sprintf("%d dead letters, %d of them replayed", all, all)
		if got := run("dead", "list", "good.yaml"); !strings.Contains(got, want) {
			t.Errorf("after a reset of the second file: %s\nwant %s", got, want)
		}
		run("checkpoint", "reset", "good.yaml", "p/main", "--partition", first)
		want = fmt.Sprintf("%d dead letters, 0 of them replayed", all)
		if got := run("dead", "list", "good.yaml"); !strings.Contains(got, want) {
			t.Errorf("after a reset of the first file: %s\nwant %s", got, want)
		}
	}
}
