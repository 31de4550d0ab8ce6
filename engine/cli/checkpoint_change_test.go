package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestChangeOfLetters checks whether a replayed dead letter counts as not replayed after progress
// was set or reset. The output must count the letter once, even if it is in both layers of the
// checkpoint (docs/adr/0004-two-layers-of-checkpoint.md).
func TestChangeOfLetters(t *testing.T) {
	letter := deadletter.PartitionOf("rows@1")
	for name, c := range map[string]struct {
		keys   []string // of the route in the checkpoint
		mark   stream.Mark
		change change
		open   bool
		want   string // in the output
	}{
		"positions with a key are set to the beginning": {
			[]string{"p/main"}, stream.Mark{Watermark: stream.Position{Key: "7"}},
			change{parts: []string{"rows"}, set: true}, true, "1 dead letters count as not",
		},
		"two layers": {
			[]string{"p/main", "p/main" + checkpoint.BootMark + "boot"},
			stream.Mark{Watermark: stream.Position{Num: 7}},
			change{}, true, "1 dead letters count as not",
		},
		"a partition in two layers": {
			[]string{"p/main", "p/main" + checkpoint.BootMark + "boot"},
			stream.Mark{Watermark: stream.Position{Num: 7}},
			change{}, true, "progress of 1 partition;",
		},
		"an accepted output": {
			[]string{"p/main"}, stream.Mark{Watermark: stream.Position{Num: 7}},
			change{found: true}, false, "the next start accepts the output",
		},
		"nothing above the position": {
			[]string{"p/main"}, stream.Mark{
				Watermark: stream.Position{Num: 7},
				Above: []stream.Range{{
					From: stream.Position{Num: 8}, To: stream.Position{Num: 9},
				}},
			}, change{parts: []string{"rows"}, set: true, to: 9}, false, "progress of 1 partition;",
		},
		"a letter by its id": {
			[]string{"p/main"}, stream.Mark{Watermark: stream.Position{Num: 7}},
			change{parts: []string{letter}, set: true}, true, "1 dead letters count as not",
		},
		"a letter by its id, as settled": {
			[]string{"p/main"}, stream.Mark{Watermark: stream.Position{Num: 7}},
			change{parts: []string{letter}, set: true, to: 1}, false, "progress of 1 partition;",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := vfstest.New()
			dir, err := files.MakeDir("/state", 0o700)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			store, _, err := checkpoint.Open(dir, checkpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			c.mark.Part = stream.Partition{ID: "rows", Name: "db.rows"}
			marks := []stream.Mark{c.mark, {
				Part:      stream.Partition{ID: letter, Name: "db.rows"},
				Watermark: stream.Position{Num: 1},
			}}
			for _, key := range c.keys {
				if err := store.Append(key, marks, nil); err != nil {
					t.Fatal(err)
				}
			}
			c.change.route, c.change.files, c.change.letters = "p/main", files, "/none/letters"
			var out strings.Builder
			if err := c.change.apply(&out, dir, store); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("output %q, want %q", &out, c.want)
			}
			open := true
			for _, key := range c.keys {
				for m := range store.Marks(key) {
					open = open && (m.Part.ID != letter || m.Watermark.Num < 1)
				}
			}
			if open != c.open {
				t.Errorf("the letter is open: %t, want %t", open, c.open)
			}
		})
	}
}

// TestChangeOfDamagedCheckpoint runs commands on a checkpoint with a damaged entry. They must return
// an error, because they would otherwise use less than the stored progress. They must not change
// the file.
func TestChangeOfDamagedCheckpoint(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "penstock.yaml", "state: ./state\npipelines: { access: { source: { tail: "+
		"{ include: [./*.log] } }, sink: { drop: } } }\n")
	saved(t, "state")
	path := filepath.Join("state", checkpoint.Name)
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	log[bytes.Index(log, []byte("boot=7"))] ^= 1 // in the first of two entries
	writeFile(t, path, string(log))
	writeFile(t, "state/dead/access.main.ndjson", `{"version":1,"id":"a@1","record":"x"}`+"\n")
	for _, args := range []string{
		"checkpoint reset state access/main",
		"checkpoint set state --route access/main --partition f1 --watermark 0",
		"checkpoint convert state --format 3",
		"dead list penstock.yaml",
		"dead show penstock.yaml",
		"dead discard --all penstock.yaml",
		"dead replay penstock.yaml",
	} {
		got := realProgram().try(t, strings.Fields(args)...)
		if got.code != exitUnfinished || !strings.Contains(got.stderr, "damaged") {
			t.Errorf("%s: exit code %d\n%s%s", args, got.code, got.out, got.stderr)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, log) {
			t.Fatalf("%s: the checkpoint was changed, %v", args, err)
		}
	}
}
