package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const flumeAgent = `a1.sources = s
a1.channels = c
a1.sinks = k
a1.sources.s.type = spooldir
a1.sources.s.spoolDir = in
a1.sources.s.channels = c
a1.channels.c.type = memory
a1.sinks.k.type = file_roll
a1.sinks.k.sink.directory = out
a1.sinks.k.channel = c
`

// TestImportFlume converts the config of a Flume agent. The new config must be valid, and a run
// with it must continue in the agent's directory: it skips the files that Flume has finished, and
// delivers the others.
func TestImportFlume(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		writeFile(t, name, text)
	}
	write("agent.conf", flumeAgent)
	write("in/1.log.COMPLETED", "done by flume\n")
	write("in/2.log", "half done\nnot read by flume\n")
	write("in/3.log", strings.Repeat("x", 3000)+"\n")
	write("in/.flumespool/.flumespool-main.meta", "Obj\x01")

	p := realProgram()
	made := p.try(t, "import", "flume", "agent.conf", "--out", "penstock.yaml")
	if made.code != exitOK || !strings.Contains(made.stderr, "agent a1: 0 lost, ") {
		t.Fatalf("import: %+v", made)
	}
	if again := p.try(t, "import", "flume", "agent.conf", "--out", "penstock.yaml"); again.code != exitUsage {
		t.Errorf("an existing file was replaced: %+v", again)
	}
	if valid := p.try(t, "validate", "penstock.yaml"); valid.code != exitOK {
		t.Fatalf("validate: %+v", valid)
	}
	if ran := p.try(t, "run", "--once", "penstock.yaml"); ran.code != exitOK {
		t.Fatalf("run: %+v", ran)
	}
	got, err := os.ReadFile("out/k.log")
	if err != nil {
		t.Fatal(err)
	}
	want := "half done\nnot read by flume\n" + strings.Repeat("x", 2048) + "\n" + strings.Repeat("x", 952) + "\n"
	if string(got) != want {
		t.Errorf("delivered %q", got)
	}
	for _, name := range []string{"in/1.log.COMPLETED", "in/2.log.COMPLETED", "in/3.log.COMPLETED"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

func TestImportFlumeSays(t *testing.T) {
	t.Chdir(t.TempDir())
	foreign := strings.Replace(flumeAgent, "file_roll", "hdfs", 1)
	two := flumeAgent + strings.ReplaceAll(flumeAgent, "a1.", "a2.")
	for name, text := range map[string]string{"foreign.conf": foreign, "two.conf": two, "none.conf": "# nothing\n"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := newProgram(newFake(), nil)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"foreign.conf"}, exitUnfinished,
			`lost: line 8: a1.sinks.k.type: penstock has no sink `},
		{[]string{"two.conf"}, exitUsage,
			"the file declares several agents (a1, a2): select one with --agent"},
		{[]string{"two.conf", "--agent", "a3"}, exitUsage,
			`the file declares no agent "a3", only a1, a2`},
		{[]string{"none.conf"}, exitUsage, "none.conf: the file declares no agent"},
		{[]string{"absent.conf"}, exitUsage, "absent.conf"},
		{[]string{"two.conf", "--agent", "a1", "--json"}, exitUsage, "needs --out FILE"},
		{nil, exitUsage, "the path of a Flume agent's properties file"},
	} {
		got := p.try(t, append([]string{"import", "flume"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: code %d, %q; want %d, %q", c.args, got.code, got.stderr, c.code, c.want)
		}
	}
	got := p.try(t, "import", "flume", "foreign.conf", "--json", "--out", "made.yaml")
	want := `{"ok":false,"agent":"a1","out":"made.yaml","lost":1,"differs":3,"unneeded":1,"needless":1,"carried":0}` + "\n"
	if got.code != exitUnfinished || !strings.Contains(got.out, `"kind":"lost","weight":"lost"`) ||
		!strings.HasSuffix(got.out, want) {
		t.Errorf("json: %+v", got)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
