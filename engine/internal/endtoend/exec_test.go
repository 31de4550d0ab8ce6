package endtoend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// examples returns the folder of the project's examples.
func examples(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../../examples")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// python skips the test if there is no python3.
func python(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("python3", "-c", "print(1)").CombinedOutput(); err != nil {
		t.Skipf("skipped: python3 does not run here (%v): %s", err, out)
	}
}

// killing runs the program on a config to its end. Whenever progress has advanced by step, it kills
// a child of the program with SIGKILL. The argument most limits the number of kills. It returns the
// number of kills.
func killing(t *testing.T, config string, progress func() int64, step int64,
	most int) (killed int) {
	t.Helper()
	cmd, out, errs, err := started(t, config)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for next := progress() + step; ; {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out.String(), errs.String())
			}
			return killed
		case <-tick.C:
		}
		if killed == most || progress() < next {
			continue
		}
		pids := childrenOf(t, cmd.Process.Pid)
		if len(pids) == 0 {
			continue
		}
		if child, err := os.FindProcess(pids[killed%len(pids)]); err == nil && child.Kill() == nil {
			killed++
			next = progress() + step
		}
	}
}

// childrenOf returns the children of all threads of a process.
func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				pids = append(pids, n)
			}
		}
	}
	slices.Sort(pids)
	return pids
}

// needChildren skips the test if the system does not report the children of a process.
func needChildren(t *testing.T) {
	t.Helper()
	if lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children",
		os.Getpid())); len(lists) == 0 {
		t.Skip("skipped: this system does not list a process's children in /proc")
	}
}

func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

var words = regexp.MustCompile(`[a-z]+`)

// TestBoltCountsWords runs a bolt of Storm's protocol that counts the words of a real log, and
// kills it repeatedly. The sink file delivers exactly once, so its file must contain each word as
// often as the log.
func TestBoltCountsWords(t *testing.T) {
	t.Parallel()
	python(t)
	needChildren(t)
	log := slices.MinFunc(realLogs(t), func(a, b string) int { return int(sizeOf(a) - sizeOf(b)) })
	text := completeLines(read(t, log))
	text = text[:1+bytes.LastIndexByte(text[:min(len(text), 2<<20)], '\n')]
	want := make(map[string]int)
	for line := range bytes.Lines(text) {
		for _, w := range words.FindAll(bytes.ToLower(bytes.ToValidUTF8(line, []byte("\uFFFD"))),
			-1) {
			want[string(w)]++
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "real.log"), string(text))
	write(t, filepath.Join(dir, "words.py"),
		string(read(t, filepath.Join(examples(t), "exec-storm", "words.py"))))
	config := write(t, filepath.Join(dir, "penstock.yaml"), `
state: ./state
pipelines:
  words:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    processors: [{ exec: { command: [python3, words.py], protocol: storm, fields: [word, count], env: [PATH, HOME] } }]
    sink: { file: { path: ./words.ndjson, format: ndjson } }
    batch: { bytes: 32KiB }
`)
	out := filepath.Join(dir, "words.ndjson")
	killed := killing(t, config, func() int64 { return sizeOf(out) }, 100<<10, 8)
	t.Logf("%s: %d bytes, %d words; %d kills", filepath.Base(log), len(text), len(want), killed)
	if killed == 0 {
		t.Error("no child was killed: the test shows nothing")
	}
	got := make(map[string]int)
	for line := range bytes.Lines(read(t, out)) {
		var w struct {
			Word  string
			Count int
		}
		if err := json.Unmarshal(line, &w); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[w.Word] += w.Count
	}
	for w, n := range want {
		if got[w] != n {
			t.Errorf("%q: counted %d times, the log has it %d times", w, got[w], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d different words, want %d", len(got), len(want))
	}
}

// TestWorkersKilled kills children of a sink while they work. Every record must be delivered at
// least once, and none may become a dead letter. Each kill may repeat at most the records of two
// batches.
func TestWorkersKilled(t *testing.T) {
	t.Parallel()
	needChildren(t)
	for _, c := range []struct{ name, worker, options string }{
		{"ndjson", "while IFS= read -r line; do printf '%s\\n' \"$line\" >>got.txt; " +
			"echo '{\"delivered\":true}'; done", "protocol: ndjson"},
		{"lines", "text=$(cat); printf '%s\\n' \"$text\" >>got.txt", "protocol: lines"},
		{"storm", stormShell, "protocol: storm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			const records = 20_000
			var text strings.Builder
			for n := range records {
				fmt.Fprintf(&text, "<%d>\n", n)
			}
			write(t, filepath.Join(dir, "spool", "a.log"), text.String())
			write(t, filepath.Join(dir, "worker.sh"), c.worker+"\n")
			config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  kill:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    sink: { exec: { command: [sh, worker.sh], workers: 3, %s } }
    batch: { records: 50 }
    retry: { base: 10ms }
`, c.options))
			got := filepath.Join(dir, "got.txt")
			killed := killing(t, config, func() int64 { return sizeOf(got) }, 10<<10, 10)
			if killed < 3 {
				t.Errorf("only %d children were killed: the test shows little", killed)
			}
			seen := make(map[string]int)
			for _, m := range regexp.MustCompile(`<\d+>`).FindAllString(string(read(t, got)), -1) {
				seen[m]++
			}
			twice := 0
			for n := range records {
				switch count := seen[fmt.Sprintf("<%d>", n)]; {
				case count == 0:
					t.Fatalf("record %d was lost", n)
				case count > 1:
					twice++
				}
			}
			t.Logf("%d kills, %d of %d records twice", killed, twice, records)
			if most := killed * 50 * 2; twice > most {
				t.Errorf("%d records came twice after %d kills; want at most %d", twice,
					killed, most)
			}
			if letters, _ := filepath.Glob(filepath.Join(dir, "state", "dead",
				"*")); len(letters) > 0 && sizeOf(letters[0]) > 0 {
				t.Errorf("there are dead letters: %s", read(t, letters[0]))
			}
		})
	}
}

// TestPoisonKillsChildren checks records that kill the child, with protocol ndjson in a sink and
// with protocol lines in a processor. These records must become dead letters, and all others must
// be delivered.
func TestPoisonKillsChildren(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, worker, config string }{
		{
			"ndjson sink",
			"while IFS= read -r line; do case $line in *poison*) kill -9 $$;; esac\n" +
				"printf '%s\\n' \"$line\" >>got.txt; echo '{\"delivered\":true}'; done",
			"sink: { exec: { command: [sh, worker.sh], protocol: ndjson, workers: 2 } }",
		},
		{
			"lines processor",
			"while IFS= read -r line; do case $line in *poison*) kill -9 $$;; esac; " +
				"echo \"$line\"; done",
			"processors: [{ exec: { command: [sh, worker.sh] } }], sink: { file: { path: " +
				"./got.txt, format: raw } }",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			const records = 3000
			var text strings.Builder
			for n := range records {
				if n == 700 || n == 2100 {
					fmt.Fprintf(&text, "poison %d\n", n)
					continue
				}
				fmt.Fprintf(&text, "<%d>\n", n)
			}
			write(t, filepath.Join(dir, "spool", "a.log"), text.String())
			write(t, filepath.Join(dir, "worker.sh"), c.worker+"\n")
			res := once(t, write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  poison: { source: { spool_dir: {path: ./spool, finished: keep, quiet_period: 10ms} }, %s, batch: { records: 100 }, retry: { base: 10ms } }
`, c.config))).Pipelines[0]
			if res.Dead != 2 || res.Delivered != records-2 {
				t.Errorf("%+v, want 2 dead letters and the rest delivered", res)
			}
			got := string(read(t, filepath.Join(dir, "got.txt")))
			for n := range records {
				if n != 700 && n != 2100 && !strings.Contains(got, fmt.Sprintf("<%d>", n)) {
					t.Fatalf("record %d was lost", n)
				}
			}
			letters := string(read(t, filepath.Join(dir, "state", "dead", "poison.main.ndjson")))
			if strings.Count(letters, "\n") != 2 || strings.Count(letters, "3 ") < 2 ||
				!strings.Contains(letters, "signal: killed") {
				t.Errorf("dead letters: %s", letters)
			}
		})
	}
}
