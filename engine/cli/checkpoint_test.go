package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/stream"
)

// saved creates a state directory with a checkpoint.
func saved(t *testing.T, state string) {
	t.Helper()
	dir, err := osfs.New().MakeDir(state, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	store, _, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(n int64) stream.Position { return stream.Position{Num: n} }
	marks := []stream.Mark{
		{Part: stream.Partition{ID: "f1", Name: "a.log"}, Watermark: at(2370789), Finished: true},
		{Part: stream.Partition{ID: "f2", Name: "b\x1b[2J.log"}, Watermark: at(1000),
			Above: []stream.Range{{From: at(2000), To: at(3000)}, {From: at(4000), To: at(5000)}}},
		{Part: stream.Partition{ID: "t1", Name: "orders"}, Watermark: stream.Position{Num: 3, Key: "\x01k\xff"}},
	}
	later := []stream.Mark{{Part: marks[0].Part, Watermark: at(3000000)}}
	if err := store.Append("access/main@boot=7", later, nil); err != nil {
		t.Fatal(err)
	}
	if err := store.Append("access/main", marks, map[string]string{"out.log": "inode 5, 1234 bytes"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []interface{ Close() error }{store, dir} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckpointShow(t *testing.T) {
	path := testdata(t, "checkpoint.golden")
	inFolder(t)
	saved(t, "state")
	p := newProgram(newFake(), nil)
	byConfig, byState := p.try(t, "checkpoint", "show", "penstock.yaml"), p.try(t, "checkpoint", "show", "state")
	if byConfig != byState || byConfig.code != exitOK {
		t.Errorf("by config %+v\nby state %+v", byConfig, byState)
	}
	asJSON := p.try(t, "checkpoint", "show", "--json", "state")
	golden(t, path, byState.out+"---- json\n"+asJSON.out)
}

func TestCheckpointShowDamage(t *testing.T) {
	inFolder(t)
	p := newProgram(newFake(), nil)
	if err := os.Mkdir("state", 0o700); err != nil {
		t.Fatal(err)
	}
	none := p.try(t, "checkpoint", "show", "state")
	want := "penstock: state directory state has no checkpoint: no route has saved progress in it yet\n"
	if none.code != exitUnfinished || none.stderr != want {
		t.Errorf("without a checkpoint: %+v", none)
	}
	saved(t, "state")
	file := filepath.Join("state", checkpoint.Name)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[0] ^= 0xff
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	got := p.try(t, "checkpoint", "show", "state")
	if got.code != exitUnfinished || !strings.Contains(got.stderr, "state directory state: ") {
		t.Errorf("with a damaged header: %+v", got)
	}
}

// TestCheckpointChange checks the commands that reset or set the progress of a partition, given by
// id or by name. They must change both layers of the checkpoint
// (docs/adr/0004-two-layers-of-checkpoint.md), and make a backup. Ambiguous arguments must be
// refused.
func TestCheckpointChange(t *testing.T) {
	inFolder(t)
	saved(t, "state")
	p := newProgram(newFake(), nil)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"verify", "state"}, exitOK, "4 marks of 1 route "},
		{[]string{"set", "state", "--route", "access/main", "--partition", "a.log", "--watermark",
			"77"}, exitOK, "progress of 1 partition;"},
		{[]string{"set", "state", "--route", "access/main", "--partition", "orders", "--watermark",
			"7"}, exitUsage, `the positions of partition "orders" of access/main are not numbers`},
		{[]string{"reset", "state", "--route", "access/main", "--partition", "f2", "--partition",
			"x"}, exitUnfinished, `no partition ["x"]`},
		{[]string{"reset", "state", "--route", "access/main", "--partition", "f2"}, exitOK,
			"progress of 1 partition;"},
		{[]string{"reset", "state", "--route", "access/other"}, exitUnfinished, `it has ["access/main"]`},
		{[]string{"reset", "state", "--route", "access/main", "--partition", "x"}, exitUnfinished, "no partition"},
		{[]string{"set", "state", "--route", "access/main", "--partition", "a.log"}, exitUsage,
			"needs --partition, and --watermark"},
		{[]string{"convert", "state"}, exitUsage, "needs --format"},
		{[]string{"convert", "state", "--format", "0"}, exitUsage,
			"writes the formats 2 to 3, not 0"},
		{[]string{"convert", "state", "--format", "9"}, exitUsage,
			"writes the formats 2 to 3, not 9"},
		{[]string{"convert", "state", "--format", "2"}, exitOK,
			"now has format 2; the previous one is kept as checkpoint.log.v3-1"},
	} {
		got := p.try(t, append([]string{"checkpoint"}, tt.args...)...)
		if got.code != tt.code || !strings.Contains(got.out+got.stderr, tt.want) {
			t.Errorf("%v: %+v, want %q", tt.args, got, tt.want)
		}
	}
	shown := p.try(t, "checkpoint", "show", "--json", "state").out
	if n := strings.Count(shown, `"watermark":{"num":77}`); n != 2 || strings.Contains(shown, `"f2"`) {
		t.Errorf("after the changes: %s", shown)
	}
	if got := p.try(t, "checkpoint", "reset", "state", "--route", "access/main"); got.code != exitOK {
		t.Errorf("%+v", got)
	}
	if shown := p.try(t, "checkpoint", "show", "--json", "state").out; !strings.Contains(shown, `"routes":0`) {
		t.Errorf("after a reset of the route: %s", shown)
	}
	copies, err := filepath.Glob("state/" + checkpoint.Name + ".before-*")
	if err != nil || len(copies) != 3 {
		t.Errorf("copies %v, %v; want one of each change", copies, err)
	}
}

// TestCheckpointOfConfigDirectory checks that the argument may be a config of several files, and
// that a directory with a checkpoint is a state directory even if it has YAML files.
func TestCheckpointOfConfigDirectory(t *testing.T) {
	inFolder(t)
	saved(t, "conf/state")
	writeFile(t, "conf/penstock.yaml",
		"pipelines: { access: { source: { stdin: }, sink: { drop: } } }\n")
	writeFile(t, "conf/state/notes.yaml", "a: b\n")
	p := realProgram()
	for _, args := range []string{"show conf", "verify conf", "show conf/state",
		"set conf --route access/main --partition f1 --watermark 0", "reset conf access/main"} {
		got := p.try(t, append([]string{"checkpoint"}, strings.Fields(args)...)...)
		if got.code != exitOK {
			t.Errorf("checkpoint %s: exit code %d, %s%s", args, got.code, got.out, got.stderr)
		}
	}
}
