//go:build unix

package cli

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// spoolMeta returns the contents of a file .flumespool-main.meta, as Flume 1.11's
// DurablePositionTracker writes it. It is an Avro data file. Its metadata has the name of the
// spooled file. It has one block with one record for each stored position.
func spoolMeta(file string, offsets ...int64) string {
	const schema = `{"type":"record","name":"TransferStateFileMeta","namespace":"org.apache.flume.serialization",` +
		`"fields":[{"name":"offset","type":"long"}]}`
	text := func(b []byte, s string) []byte { return append(binary.AppendVarint(b, int64(len(s))), s...) }
	b := binary.AppendVarint([]byte("Obj\x01"), 2)
	for _, pair := range [][2]string{{"file", file}, {"avro.schema", schema}} {
		b = text(text(b, pair[0]), pair[1])
	}
	marker := "0123456789abcdef"
	b = append(append(b, 0), marker...)
	for _, at := range offsets {
		data := binary.AppendVarint(nil, at)
		b = binary.AppendVarint(binary.AppendVarint(b, 1), int64(len(data)))
		b = append(append(b, data...), marker...)
	}
	return string(b)
}

// moved imports the config of a Flume agent, and runs the result twice. The import must report that
// it has carried over the positions of as many files as the argument carried. moved returns the
// delivered data and the output of the import.
func moved(t *testing.T, agent string, carried int) (arrived, said string) {
	t.Helper()
	writeFile(t, "agent.conf", agent)
	p := realProgram()
	made := p.try(t, "import", "flume", "agent.conf", "--out", "penstock.yaml", "--json")
	if made.code != exitOK || !strings.Contains(made.out, fmt.Sprintf(`"carried":%d}`, carried)) {
		t.Fatalf("import: %+v; want %d files carried over", made, carried)
	}
	for range 2 { // the second run finds nothing to do
		if ran := p.try(t, "run", "--once", "penstock.yaml"); ran.code != exitOK {
			t.Fatalf("run: %+v", ran)
		}
	}
	got, err := os.ReadFile("out/k.log")
	if err != nil {
		t.Fatal(err)
	}
	return string(got), made.out
}

func inode(t *testing.T, name string) uint64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Skip("this system has no inodes")
	}
	return stat.Ino
}

const (
	tailAgent = "a.sources = s\na.channels = c\na.sinks = k\na.sources.s.type = TAILDIR\na.sources.s.channels = c\n" +
		"a.sources.s.filegroups = f\na.sources.s.filegroups.f = " +
		"%s/logs/.*log.*\na.sources.s.positionFile = %s/pos.json\n" + sinkOfAgent
	spoolAgent = "a.sources = s\na.channels = c\na.sinks = k\na.sources.s.type = spooldir\na.sources.s.channels = c\n" +
		"a.sources.s.spoolDir = %s/in\n" + sinkOfAgent
	sinkOfAgent = "a.channels.c.type = memory\na.sinks.k.type = " +
		"file_roll\na.sinks.k.sink.directory = out\na.sinks.k.channel = c\n"
)

// TestImportTaildir checks that each file resumes at its stored position, even if it was renamed.
// No data may be lost, and repeated data must be reported.
func TestImportTaildir(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, "logs/whole.log", "read 1\nread 2\n")
	writeFile(t, "logs/half.log", "read 3\nnew 1\nnew 2\n")
	writeFile(t, "logs/turned.log.1", "read 4\nnew 3\n")
	writeFile(t, "logs/turned.log", "new 4\n")
	writeFile(t, "logs/within.log", "read 5\ntwice 1\nnew 5\n")
	writeFile(t, "logs/shrunk.log", "new 6\n")
	writeFile(t, "logs/unknown.log", "new 7\n")
	at := func(name, file string, pos int) string {
		return fmt.Sprintf(`{"inode":%d,"pos":%d,"file":"%s/logs/%s"}`, inode(t, "logs/"+name), pos, here, file)
	}
	writeFile(t, "pos.json", "["+strings.Join([]string{
		at("whole.log", "whole.log", 14), at("half.log", "half.log", 7), at("turned.log.1", "turned.log", 7),
		at("within.log", "within.log", 11), at("shrunk.log", "shrunk.log", 500),
		fmt.Sprintf(`{"inode":1,"pos":9,"file":"%s/logs/gone.log"}`, here),
	}, ",")+"]")
	got, said := moved(t, fmt.Sprintf(tailAgent, here, here), 4)
	for n := range 7 {
		if line := fmt.Sprintf("new %d\n", n+1); strings.Count(got, line) != 1 {
			t.Errorf("%q is not there once", line)
		}
	}
	if strings.Contains(got, "read") || !strings.Contains(got, "twice 1\n") || strings.Count(got, "\n") != 8 {
		t.Errorf("delivered %q", got)
	}
	for _, want := range []string{
		"4 of 6 files resume at their positions",
		"is inside a line: the 4 bytes before it are repeated", "is now turned.log.1",
		"has 6 bytes, but Flume had read 500: it was rewritten",
		"gone.log\",\"kind\":\"differs\",\"weight\":\"differs\",\"text\":\"does not exist",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no note contains %q: %s", want, said)
		}
	}
}

// TestImportSpool imports a directory that Flume 1.11 has read in part. Finished files must be
// skipped. They have the suffix .COMPLETED, or a marker in trackerDir. The current file must resume
// after the last batch that Flume has recorded.
func TestImportSpool(t *testing.T) {
	for _, policy := range []string{"rename", "tracker_dir"} {
		t.Run(policy, func(t *testing.T) {
			t.Chdir(t.TempDir())
			here, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			agent, carried, done := fmt.Sprintf(spoolAgent, here), 1, "in/1.log.COMPLETED"
			if policy == "tracker_dir" {
				agent += "a.sources.s.trackingPolicy = tracker_dir\na.sources.s.trackerDir = seen\n"
				carried, done = 2, "in/1.log"
				writeFile(t, "in/seen/1.log.COMPLETED", "")
				writeFile(t, "in/seen/.flumespool-main.meta", spoolMeta(here+"/in/2.log", 7, 14))
			} else {
				writeFile(t, "in/.flumespool/.flumespool-main.meta", spoolMeta(here+"/in/2.log", 7, 14)+"\x02\x04to")
			}
			writeFile(t, done, "read 1\n")
			writeFile(t, "in/2.log", "read 2\nread 3\nnew 1\nnew 2\n")
			writeFile(t, "in/3.log", "new 3\n")
			got, said := moved(t, agent, carried)
			if got != "new 1\nnew 2\nnew 3\n" && got != "new 3\nnew 1\nnew 2\n" {
				t.Errorf("delivered %q", got)
			}
			if want := "the unfinished file 2.log resumes at byte 14"; !strings.Contains(said,
				want) {
				t.Errorf("no note contains %q: %s", want, said)
			}
		})
	}
}

// TestImportDamaged imports Flume's file of stored positions, which is cut off as after a full
// disk. All data must be delivered, and the message must state that data is repeated.
func TestImportDamaged(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, "in/.flumespool/.flumespool-main.meta", "Obj\x01\x04")
	writeFile(t, "in/2.log", "one\ntwo\n")
	got, said := moved(t, fmt.Sprintf(spoolAgent, here), 0)
	if got != "one\ntwo\n" ||
		!strings.Contains(said,
			"is read from its beginning, and repeats the data that Flume has delivered") {
		t.Errorf("delivered %q, said %s", got, said)
	}
}

// TestImportFolders checks that a glob which ends with ** means the same in the new config: all
// files in a folder and below it.
func TestImportFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "in/a.log", "a\n")
	writeFile(t, "in/b/c.log", "c\n")
	writeFile(t, "filebeat.yml", "filebeat.inputs: [{type: log, paths: [in/**]}]\n"+
		"output.file: {path: ., filename: out}\n")
	p := realProgram()
	made := p.try(t, "import", "filebeat", "filebeat.yml", "--out", "penstock.yaml")
	if made.code != exitOK {
		t.Fatalf("import: %+v", made)
	}
	if ran := p.try(t, "run", "--once", "penstock.yaml"); ran.code != exitOK {
		t.Fatalf("run: %+v", ran)
	}
	if got, err := os.ReadFile("out"); err != nil || strings.Count(string(got), "\n") != 2 {
		t.Errorf("delivered %q, %v; want 2 records", got, err)
	}
}
