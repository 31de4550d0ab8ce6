//go:build unix

package cli

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// device returns the device number of a file.
func device(t *testing.T, name string) uint64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(info.Sys().(*syscall.Stat_t).Dev)
}

// imported imports a program's config, and runs the result twice. The import must report that it
// has carried over the positions of as many files as the argument carried. imported returns the
// delivered data and the output of the import.
func imported(t *testing.T, carried int, args ...string) (arrived, said string) {
	t.Helper()
	p := realProgram()
	made := p.try(
		t,
		append(append([]string{"import"}, args...), "--out", "penstock.yaml", "--json")...)
	if made.code != exitOK || !strings.Contains(made.out, fmt.Sprintf(`"carried":%d}`, carried)) {
		t.Fatalf("import: %+v; want %d files carried over", made, carried)
	}
	if valid := p.try(t, "validate", "penstock.yaml"); valid.code != exitOK {
		t.Fatalf("validate: %+v", valid)
	}
	for range 2 { // the second run finds nothing to do
		if ran := p.try(t, "run", "--once", "penstock.yaml"); ran.code != exitOK {
			t.Fatalf("run: %+v", ran)
		}
	}
	got, err := os.ReadFile("out/all.log")
	if err != nil {
		t.Fatal(err)
	}
	return string(got), made.out
}

// wantNew checks that each line "new N", for N from 1 to n, arrived once. The other program had
// read the lines "read N" before the import, so they must not arrive.
func wantNew(t *testing.T, got string, n int) {
	t.Helper()
	for i := 1; i <= n; i++ {
		if line := fmt.Sprintf(
			"new %d",
			i,
		); strings.Count(
			got,
			line+`"`,
		)+strings.Count(
			got,
			line+"\n",
		) != 1 {
			t.Errorf("%q is not there once", line)
		}
	}
	if strings.Contains(got, "read ") {
		t.Errorf("data came twice: %q", got)
	}
}

// logs creates files in the directory logs, which the other program has read in part.
func logs(t *testing.T) (here string) {
	t.Helper()
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, "logs/whole.log", "read whole 1\nread 2\n")
	writeFile(t, "logs/half.log", "read half 3\nnew 1\nnew 2\n")
	writeFile(t, "logs/app.log.1", "read rotated 4\nnew 3\n")
	writeFile(t, "logs/app.log", "new 4\n")
	writeFile(t, "logs/unknown.log", "new 5\n")
	return here
}

const filebeatConfig = `
filebeat.inputs:
  - { type: %s, id: %s, paths: ["%s/logs/*.log*"] }
output.file: { path: ./out, filename: all.log }
path.data: ./data
`

// TestImportFilebeatUnread checks a file of which Filebeat has stored the position 0. All of it must
// be delivered, although `tail_files` makes Filebeat read new files from their ends.
func TestImportFilebeatUnread(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, "logs/a.log", "new 1\nnew 2\n")
	config := fmt.Sprintf(filebeatConfig, "log", "any", here)
	writeFile(t, "filebeat.yml", strings.Replace(config, "id: any", "tail_files: true", 1))
	writeFile(t, "data/registry/filebeat/log.json", fmt.Sprintf(`{"op":"set","id":1}
{"k":"filebeat::logs::native::%d-%d","v":{"source":"%s/logs/a.log","offset":0}}
`, inode(t, "logs/a.log"), device(t, "logs/a.log"), here))
	got, _ := imported(t, 0, "filebeat", "filebeat.yml")
	wantNew(t, got, 2)
}

// TestImportFilebeatLog imports the file positions in the registry of Filebeat's input `log`. The
// registry consists of a snapshot and a log of changes. The log contains the removal of a key, a
// change that is older than the snapshot, and an incomplete end.
func TestImportFilebeatLog(t *testing.T) {
	here := logs(t)
	writeFile(t, "filebeat.yml", fmt.Sprintf(filebeatConfig, "log", "any", here))
	key := func(name string) string {
		return fmt.Sprintf(
			"filebeat::logs::native::%d-%d",
			inode(t, "logs/"+name),
			device(t, "logs/"+name),
		)
	}
	state := func(source string, offset int) string {
		return fmt.Sprintf(
			`"source":"%s/logs/%s","offset":%d,"identifier_name":"native","ttl":-1`,
			here,
			source,
			offset,
		)
	}
	const registry = "data/registry/filebeat/"
	writeFile(t, registry+"meta.json", `{"version":"1"}`)
	writeFile(t, registry+"active.dat", "/var/lib/filebeat/registry/filebeat/20.json")
	writeFile(
		t,
		registry+"20.json",
		fmt.Sprintf(`[{"_key":"%s",%s},{"_key":"%s",%s},{"_key":"%s",%s}]`,
			key("whole.log"), state("whole.log", 20), key("half.log"), state("half.log", 3),
			key("unknown.log"), state("unknown.log", 6)),
	)
	writeFile(t, registry+"log.json", fmt.Sprintf(
		`{"op":"set","id":20}
{"k":"%[1]s","v":{%[2]s}}
{"op":"set","id":21}
{"k":"%[1]s","v":{%[3]s}}
{"op":"set","id":22}
{"k":"%[4]s","v":{%[5]s}}
{"op":"remove","id":23}
{"k":"%[6]s"}
{"op":"set","id":24}
{"k":"%[1]s","v":{"off`,
		key(
			"half.log",
		),
		state("half.log", 0),
		state("half.log", 12),
		key("app.log.1"),
		state("app.log", 15),
		key("unknown.log"),
	))
	got, said := imported(t, 3, "filebeat", "filebeat.yml")
	wantNew(t, got, 5)
	for _, want := range []string{"3 of 3 files resume at their positions",
		"app.log\",\"kind\":\"differs\",\"weight\":\"differs\",\"text\":\"is now app.log.1"} {
		if !strings.Contains(said, want) {
			t.Errorf("no note says %q in %s", want, said)
		}
	}
}

// TestImportFilestream imports entries that identify files in three ways: by a fingerprint (of the
// first 1,024 bytes), by inode, and by path. Entries of another input must be ignored. The position of
// a path that does not exist anymore belongs to no other file: it is only noted.
func TestImportFilestream(t *testing.T) {
	here := logs(t)
	long := strings.Repeat("read long line\n", 100)
	writeFile(t, "logs/long.log.2", long+"new 6\n")
	sum := sha256.Sum256([]byte(long[:1024]))
	writeFile(t, "filebeat.yml", fmt.Sprintf(filebeatConfig, "filestream", "mine", here))
	set := func(id int, key, source string, offset int) string {
		return fmt.Sprintf(`{"op":"set","id":%d}
{"k":"filestream::%s","v":{"ttl":-1,"cursor":{"offset":%d,"eof":false},"meta":{"source":"%s/logs/%s"}}}
`, id, key, offset, here, source)
	}
	writeFile(
		t,
		"beats/registry/filebeat/log.json",
		set(1, "mine::fingerprint::"+hex.EncodeToString(sum[:]), "long.log",
			len(long))+
			set(2, fmt.Sprintf("mine::native::%d-1", inode(t, "logs/half.log")), "half.log", 12)+
			set(3, "mine::path::"+here+"/logs/whole.log", "whole.log", 20)+
			set(4, fmt.Sprintf("mine::native::%d-1", inode(t, "logs/app.log.1")), "app.log", 15)+
			set(5, fmt.Sprintf("other::native::%d-1", inode(t, "logs/app.log")), "app.log", 6)+
			set(6, "mine::path::"+here+"/logs/deleted.log", "deleted.log", 6),
	)
	got, said := imported(t, 4, "filebeat", "filebeat.yml", "--data", "beats")
	wantNew(t, got, 6)
	for _, want := range []string{"4 of 5 files resume at their positions",
		"logs/deleted.log\",\"kind\":\"differs\",\"weight\":\"differs\",\"text\":\"does not exist"} {
		if !strings.Contains(said, want) {
			t.Errorf("no note says %q in %s", want, said)
		}
	}
}

// TestImportUTF16 checks that a position in a UTF-16 file stays at the end of a line.
func TestImportUTF16(t *testing.T) {
	wide := func(text string, low bool) string {
		var out []byte
		for _, c := range []byte(text) {
			if out = append(out, 0, c); low {
				out[len(out)-2], out[len(out)-1] = c, 0
			}
		}
		return string(out)
	}
	for encoding, low := range map[string]bool{"utf-16le": true, "utf-16be": false} {
		t.Run(encoding, func(t *testing.T) {
			t.Chdir(t.TempDir())
			writeFile(t, "logs/a.log", wide("read 1\nnew 1\nnew 2\n", low))
			writeFile(t, "logs/b.log", wide("read 2\nnew 3\n", low))
			writeFile(t, "filebeat.yml", `filebeat.inputs:
  - { type: filestream, id: in, paths: ["./logs/*.log"], encoding: `+encoding+` }
output.file: { path: ./out, filename: all.log }
path.data: ./data
`)
			registry := ""
			for i, c := range []struct {
				name string
				at   int
			}{{"a", len("read 1\n") * 2}, {"b", len("read 2\nn")*2 + 1}} {
				registry += fmt.Sprintf(`{"op":"set","id":%d}
{"k":"filestream::in::native::%d-1","v":{"cursor":{"offset":%d},"meta":{"source":"./logs/%s.log"}}}
`, i+1, inode(t, "logs/"+c.name+".log"), c.at, c.name)
			}
			writeFile(t, "data/registry/filebeat/log.json", registry)
			got, said := imported(t, 2, "filebeat", "filebeat.yml")
			wantNew(t, got, 3)
			if !strings.Contains(said, "byte 17, is inside a line: the 3 bytes before it") {
				t.Error(said)
			}
		})
	}
}

// TestImportFluentBit imports the database of an input `tail`. One file has two rows in it: each
// file must resume at the position in its newest row.
func TestImportFluentBit(t *testing.T) {
	here := logs(t)
	writeFile(t, "fluent-bit.conf", fmt.Sprintf(`[INPUT]
    Name tail
    Path %s/logs/*.log,%[1]s/logs/*.log.1
    DB   tail.db
    Tag  shop
    Read_from_Head On
[OUTPUT]
    Name file
    Match *
    Path ./out
    File all.log
`, here))
	db, err := sql.Open("sqlite", "tail.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	run := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("PRAGMA journal_mode = WAL")
	run(`CREATE TABLE in_tail_files (id INTEGER PRIMARY KEY, name TEXT NOT NULL, offset INTEGER,
		inode INTEGER, created INTEGER, rotated INTEGER DEFAULT 0)`)
	for _, row := range []struct {
		name, file string
		offset     int
	}{
		{"half.log", "half.log", 0}, {"whole.log", "whole.log", 20}, {"half.log", "half.log", 12},
		{"app.log", "app.log.1", 15},
	} {
		run("INSERT INTO in_tail_files (name, offset, inode, created) VALUES (?, ?, ?, 1)",
			here+"/logs/"+row.name, row.offset, inode(t, "logs/"+row.file))
	}
	got, said := imported(t, 3, "fluent-bit", "fluent-bit.conf") // while the log is not merged
	wantNew(t, got, 5)
	if !strings.Contains(said, "3 of 3 files resume at their positions") ||
		!strings.Contains(got, `{"log":"new 1"}`) {
		t.Errorf("%s\n%s", said, got)
	}
}

// TestImportVector imports checkpoints that identify files in two ways: by the checksum of the
// first line, and by inode. Each file must resume at its position.
func TestImportVector(t *testing.T) {
	here := logs(t)
	writeFile(t, "vector.toml", fmt.Sprintf(`data_dir = "data"
[sources.in]
type = "file"
include = ["%s/logs/*.log", "%[1]s/logs/*.log.1"]
[sinks.out]
type = "file"
inputs = ["in"]
path = "out/all.log"
encoding.codec = "text"
`, here))
	writeFile(t, "data/in/checkpoints.json", fmt.Sprintf(`{"version":"1","checkpoints":[
		{"fingerprint":{"first_lines_checksum":%d},"position":20,"modified":"2026-01-02T03:04:05Z"},
		{"fingerprint":{"first_lines_checksum":%d},"position":12,"modified":"2026-01-02T03:04:05Z"},
		{"fingerprint":{"first_lines_checksum":1},"position":12,"modified":"2026-01-02T03:04:05Z"},
		{"fingerprint":{"dev_inode":[%d,%d]},"position":15,"modified":"2026-01-02T03:04:05Z"}]}`,
		ecma182("read whole 1\n"), ecma182("read half 3\n"),
		device(t, "logs/app.log.1"), inode(t, "logs/app.log.1")))
	got, said := imported(t, 3, "vector", "vector.toml")
	wantNew(t, got, 5)
	if !strings.Contains(said, "3 files resume at their positions") ||
		!strings.Contains(said, "which has 4") {
		t.Error(said)
	}
}

// TestImportVectorEqualLines checks files with equal first lines. Vector reads only one of them,
// and it is unknown which. So all of them must be read from their beginnings.
func TestImportVectorEqualLines(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "logs/a.csv", "date,price\nnew 1\n")
	writeFile(t, "logs/b.csv", "date,price\nnew 2\nnew 3\n")
	writeFile(t, "vector.yaml", `data_dir: data
sources: { in: { type: file, include: ["./logs/*"], read_from: end } }
sinks: { out: { type: file, inputs: [in], path: out/all.log, encoding: { codec: text } } }
`)
	writeFile(t, "data/in/checkpoints.json", fmt.Sprintf(`{"version":"1","checkpoints":[
		{"fingerprint":{"first_lines_checksum":%d},"position":17,"modified":"2026-01-02T03:04:05Z"}]}`,
		ecma182("date,price\n")))
	got, said := imported(t, 0, "vector", "vector.yaml")
	wantNew(t, got, 3)
	if strings.Count(said, "begins like another file") != 2 {
		t.Error(said)
	}
}

// TestImportVectorUnreadable checks an import that cannot read a directory with logs. It must
// import the other positions, report the directory and a remedy, and end with exit code 1. The
// remedy must name the checkpoint only if there is one.
func TestImportVectorUnreadable(t *testing.T) {
	t.Run("other positions", func(t *testing.T) { importUnreadable(t, true) })
	t.Run("no positions", func(t *testing.T) { importUnreadable(t, false) })
}

func importUnreadable(t *testing.T, others bool) {
	here := logs(t)
	writeFile(t, "vector.yaml", `data_dir: data
sources: { in: { type: file, include: ["./logs/app.log", "./logs/app.log.1/*.log"] } }
sinks: { out: { type: file, inputs: [in], path: out/all.log, encoding: { codec: text } } }
`)
	writeFile(t, "data/in/checkpoints.json", fmt.Sprintf(`{"version":"1","checkpoints":[
		{"fingerprint":{"dev_inode":[%d,%d]},"position":1,"modified":"2026-01-02T03:04:05Z"}]}`,
		device(t, "logs/app.log"), inode(t, "logs/app.log")))
	remedy := "delete penstock.yaml and " + filepath.Join(here, "state", "checkpoint.log")
	if !others {
		writeFile(t, "data/in/checkpoints.json", `{"version":"1","checkpoints":[]}`)
		remedy = "delete penstock.yaml"
	}
	got := realProgram().try(t, "import", "vector", "vector.yaml", "--out", "penstock.yaml")
	if _, err := os.Stat("state/checkpoint.log"); (err == nil) != others {
		t.Error(err)
	}
	if got.code != exitUnfinished {
		t.Errorf("exit code %d", got.code)
	}
	for _, want := range []string{
		"penstock: import vector: files that could not be read have no position",
		remedy + ", and import as a user that can read them",
		"logs/app.log.1: not a directory",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in %s", want, got.stderr)
		}
	}
}

// ecma182 computes CRC-64/ECMA-182 by long division, independently of the importer's
// implementation.
func ecma182(text string) uint64 {
	var bits []byte
	for _, b := range append([]byte(text), make([]byte, 8)...) {
		for i := 7; i >= 0; i-- {
			bits = append(bits, b>>i&1)
		}
	}
	var sum uint64
	for _, bit := range bits {
		top := sum >> 63
		sum = sum<<1 | uint64(bit)
		if top == 1 {
			sum ^= 0x42f0e1eba9ea3693
		}
	}
	return sum
}

func TestCheckValue(t *testing.T) {
	if got := ecma182("123456789"); got != 0x6c40df5f0b497347 {
		t.Errorf("CRC-64/ECMA-182 of the usual text is %x", got)
	}
}

// TestImportWithoutPositions checks that missing or damaged positions are reported. The import must
// succeed if there are no positions, and fail if they are damaged. In all cases the new config
// delivers all data.
func TestImportWithoutPositions(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"none", "", "", "registry/filebeat does not exist: the option start applies to every file"},
		{"no snapshot", "data/registry/filebeat/active.dat", "7.json", "which active.dat names: is not there"},
		{"torn snapshot", "data/registry/filebeat/active.dat", "x", "which active.dat names"},
	} {
		t.Run(c.name, func(t *testing.T) {
			here := logs(t)
			writeFile(t, "filebeat.yml", fmt.Sprintf(filebeatConfig, "log", "any", here))
			if c.file != "" {
				writeFile(t, c.file, c.text)
			}
			made := realProgram().try(t, "import", "filebeat", "filebeat.yml", "--out", "penstock.yaml")
			if !strings.Contains(made.stderr, c.want) || (made.code == exitOK) != (c.file == "") {
				t.Errorf("%+v, want %s", made, c.want)
			}
			ran := realProgram().try(t, "run", "--once", "penstock.yaml")
			got, err := os.ReadFile("out/all.log")
			if ran.code != exitOK || err != nil {
				t.Fatalf("run: %+v, %v", ran, err)
			}
			for _, line := range []string{"read whole 1", "read 2", "read half 3", "new 1", "new 2",
				"read rotated 4", "new 3", "new 4", "new 5"} {
				if strings.Count(string(got), line) != 1 {
					t.Errorf("%q is not there once: %q", line, got)
				}
			}
		})
	}
}

// TestImportSays checks messages for bad input.
func TestImportSays(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"list.yml": "- a\n", "broken.yml": "a: [", "section.conf": "[INPUT\n", "before.conf": "@SET a=b\nName tail\n",
		"other.yaml": "a: b\n", "broken.toml": "[sources\n", "udp.yml": "filebeat.inputs: [{type: udp}]\n",
		"empty.yml": "", "cpu.conf": "[INPUT]\nName cpu\n", "metrics.yaml": "sources: {a: {type: host_metrics}}\n",
		"taken.yaml": "",
		"s3.yaml":    "sources: {a: {type: file, include: [/x]}}\nsinks: {b: {type: aws_s3, inputs: [a]}}\n",
		"big.yml":    strings.Repeat("# x\n", maxImported/4+1),
	} {
		writeFile(t, name, text)
	}
	p := newProgram(newFake(), nil)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"filebeat", "list.yml"}, exitUsage,
			"import filebeat: list.yml: line 1: the top level is not a mapping"},
		{[]string{"filebeat", "broken.yml"}, exitUsage, "import filebeat: broken.yml: "},
		{[]string{"filebeat", "absent.yml"}, exitUsage, "import filebeat: open absent.yml"},
		{[]string{"filebeat", "big.yml"}, exitUsage, "is larger than 4194304 bytes: want the path of filebeat.yml"},
		{[]string{"filebeat", "udp.yml"}, exitUnfinished, `the input "udp" is not converted`},
		{[]string{"filebeat", "empty.yml"}, exitUnfinished,
			"a source or sink in it is not converted"},
		{[]string{"filebeat", "udp.yml", "--out", "taken.yaml"}, exitUsage, "import filebeat: --out: open taken.yaml"},
		{[]string{"filebeat", "udp.yml", "--json"}, exitUsage, "needs --out FILE"},
		{[]string{"filebeat"}, exitUsage, "the path of filebeat.yml"},
		{[]string{"fluent-bit", "section.conf"}, exitUsage, `line 1: "[INPUT" is not a section: want [NAME]`},
		{[]string{"fluent-bit", "before.conf"}, exitUsage,
			`"Name tail" is before the first section`},
		{[]string{"fluent-bit", "other.yaml"}, exitUsage, "it is not a configuration of Fluent Bit"},
		{[]string{"fluent-bit", "cpu.conf"}, exitUnfinished,
			`lost: line 1: INPUT: the input `},
		{[]string{"fluent-bit"}, exitUsage, "the path of a Fluent Bit configuration"},
		{[]string{"fluent-bit", "cpu.conf", "--data", "x"}, exitUsage, "import fluent-bit has no flag --data"},
		{[]string{"vector", "broken.toml"}, exitUsage, "import vector: broken.toml: toml: "},
		{[]string{"vector", "metrics.yaml"}, exitUnfinished, `is not converted`},
		{[]string{"vector", "s3.yaml"}, exitUnfinished,
			`lost: line 2: sinks.b: the sink `},
		{[]string{"vector"}, exitUsage, "the path of a Vector configuration"},
		{[]string{"logstash", "x"}, exitUsage, "logstash"},
	} {
		got := p.try(t, append([]string{"import"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%v: code %d, %q; want %d, %q", c.args, got.code, got.stderr, c.code, c.want)
		}
	}
}

// TestImportedIsValid validates the configs made from whole files of the other programs.
func TestImportedIsValid(t *testing.T) {
	for _, c := range []struct{ program, file string }{
		{"filebeat", "filebeat/kafka.yml"}, {"fluent-bit", "fluent-bit/pipeline.yaml"},
		{"vector", "vector/small.toml"},
	} {
		file, err := filepath.Abs("../internal/migrate/testdata/" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.program, func(t *testing.T) {
			t.Chdir(t.TempDir())
			p := realProgram()
			if made := p.try(
				t,
				"import",
				c.program,
				file,
				"--out",
				"penstock.yaml",
			); made.code != exitOK {
				t.Fatalf("import: %+v", made)
			}
			if valid := p.try(t, "validate", "penstock.yaml"); valid.code != exitOK {
				t.Errorf("validate: %+v", valid)
			}
		})
	}
}

// TestImportOfRewrittenFile checks a file that was rewritten after its position was stored. It must
// be read from its beginning, although the config starts at the ends of files.
func TestImportOfRewrittenFile(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "logs/app.log", "new 1\nnew 2\n")
	writeFile(t, "logs/empty.log", "new 3\n")
	writeFile(t, "fluent-bit.conf", `[INPUT]
    Name tail
    Path ./logs/*.log
    DB   tail.db
[OUTPUT]
    Name file
    Match *
    Path ./out
    File all.log
`)
	db, err := sql.Open("sqlite", "tail.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE in_tail_files (id INTEGER PRIMARY KEY, name TEXT NOT NULL,
		offset INTEGER, inode INTEGER, created INTEGER, rotated INTEGER DEFAULT 0)`); err != nil {
		t.Fatal(err)
	}
	for name, offset := range map[string]int{"logs/app.log": 1000, "logs/empty.log": 0} {
		if _, err := db.Exec(`INSERT INTO in_tail_files (name, offset, inode, created)
			VALUES (?, ?, ?, 1)`, name, offset, inode(t, name)); err != nil {
			t.Fatal(err)
		}
	}
	got, said := imported(t, 0, "fluent-bit", "fluent-bit.conf")
	wantNew(t, got, 3)
	if !strings.Contains(said, "it was rewritten, and is read from its beginning") {
		t.Error(said)
	}
}
