package migrate_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/flume"
	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/engine/internal/osfs"
)

// FuzzConvert checks that every config is either converted or refused.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if !strings.HasSuffix(file, ".golden") {
			f.Add(filepath.Base(filepath.Dir(file)), filepath.Ext(file), string(text))
		}
	}
	f.Add("vector", ".toml", strings.Repeat("[", 2000))
	f.Add("filebeat", ".yml", strings.Repeat("a.", 2000)+"b: 1")
	f.Fuzz(func(t *testing.T, program, ext, text string) {
		r, err := convert(program, "config"+ext, text)
		if err == nil && !strings.HasPrefix(r.Config, "# Converted from ") {
			t.Errorf("the config is %q", r.Config)
		}
	})
}

// TestConvertDots checks that strings and comments do not count as deeply nested keys.
func TestConvertDots(t *testing.T) {
	addresses := `"10.0.0.1"` + strings.Repeat(`, "10.0.0.2"`, 400)
	deep := strings.Repeat("a.", 2000) + "b = 1"
	for _, c := range []struct {
		name, text string
		refused    bool
	}{
		{"list", "x = [" + addresses + "]\n", false},
		{"literal strings", "x = [" + strings.ReplaceAll(addresses, `"`, "'") + "]\n", false},
		{"numbers", "x = [1.5" + strings.Repeat(", 1.5", 2000) + "]\n", false},
		{"comment", "# don't " + deep + "\n", false},
		{"multi-line string", `x = """` + "\n\\\"\"\" " + deep + `"""` + "\n", false},
		{"key", deep, true},
		{"table", "[" + deep[:len(deep)-4] + "]\n", true},
		{"inline table", "x = {" + deep + "}\n", true},
		{"key after a quote", `x = {y = "\"", ` + deep + "}\n", true},
		{"key after four quotes", `x = {y = """a"""", ` + deep + `, z = "1"}` + "\n", true},
		{"key of quoted parts", strings.Repeat(`",".`, 2000) + "b = 1\n", true},
	} {
		_, err := migrate.ParseTOML(c.text)
		if refused := err != nil && strings.Contains(err.Error(), "dots in a key"); err != nil &&
			!refused || refused != c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestConvertDeepConfigs checks that deeply nested configs are refused at little cost.
func TestConvertDeepConfigs(t *testing.T) {
	const n = 1 << 20
	for _, c := range []struct{ program, file, text string }{
		{"vector", "c.toml", "a=" + strings.Repeat("[", n)},
		{"vector", "c.toml", "a=" + strings.Repeat("[\n", n)},
		{"vector", "c.toml", strings.Repeat("a.", n) + "b=1"},
		{"vector", "c.toml", strings.Repeat("{a=", n)},
		{"vector", "c.yaml", strings.Repeat("{a: ", 9000) + strings.Repeat("}", 9000)},
		{"filebeat", "c.yml", strings.Repeat("a.", n) + "b: 1"},
	} {
		if _, err := convert(c.program, c.file, c.text); err == nil ||
			!strings.Contains(err.Error(), "line 1") &&
				!strings.Contains(err.Error(), "open brackets") {
			t.Errorf("%s: %.20q: %v", c.file, c.text, err)
		}
	}
}

// stored is a program with a config, and the path of its file of stored positions. The config reads
// the folder logs.
type stored struct {
	convert      func(dir string) (migrate.Result, error)
	path, sample string
}

var storing = []stored{
	{func(dir string) (migrate.Result, error) {
		return flume.Convert("a.sources=s\na.channels=c\na.sinks=k\na.sources.s.channels=c\n"+
			"a.channels.c.type=memory\na.sinks.k.type=null\na.sinks.k.channel=c\n"+
			"a.sources.s.type=TAILDIR\na.sources.s.filegroups=f\na.sources.s.filegroups.f="+dir+
			"/logs/.*log\na.sources.s.positionFile=stored/pos.json\n", "")
	}, "stored/pos.json", `[{"inode":%d,"pos":4,"file":"%s"}]`},
	{func(string) (migrate.Result, error) {
		return convert("vector", "vector.yaml", "data_dir: stored\nsources: { s: { type: file, "+
			"include: [logs/*] } }\nsinks: { k: { type: blackhole, inputs: [s] } }\n")
	}, "stored/s/checkpoints.json", `{"version":"1","checkpoints":[{"fingerprint":{"dev_inode":` +
		`[1,%d]},"position":4},{"fingerprint":{"checksum":1},"position":2}]}%.0s`},
	{func(string) (migrate.Result, error) {
		return convert("filebeat", "filebeat.yml", "path.data: stored\nfilebeat.inputs: [{ type: "+
			"filestream, id: i, paths: [logs/*] }]\noutput.console: {}\n")
	}, "stored/registry/filebeat/log.json", `{"op":"set","id":1}` + "\n" +
		`{"k":"filestream::i::native::%d-1","v":{"cursor":{"offset":4},` +
		`"meta":{"source":"%s"}}}` + "\n"},
	{func(string) (migrate.Result, error) {
		return convert("filebeat", "filebeat.yml", "path.data: stored\nfilebeat.inputs: [{ type: "+
			"log, paths: [logs/*] }]\noutput.console: {}\n")
	}, "stored/registry/filebeat/7.json",
		`[{"_key":"filebeat::logs::native::%d-1","source":"%s","offset":4}]`},
	{func(string) (migrate.Result, error) {
		return convert("fluent-bit", "fluent-bit.conf", "[INPUT]\nName tail\nPath logs/*\n"+
			"DB stored/db\n[OUTPUT]\nName null\nMatch *\n")
	}, "stored/db", ""},
}

// logFile makes the folder with the log file and, for the snapshot of Filebeat, active.dat. It
// returns the path and inode of the file.
func logFile(t testing.TB, dir string) (path string, inode uint64) {
	t.Helper()
	path = filepath.Join(dir, "logs/a.log")
	for name, text := range map[string]string{path: "one\ntwo\nthree",
		filepath.Join(dir, "stored/registry/filebeat/active.dat"): "7.json\n"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := osfs.New().OpenDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	info, err := folder.Stat("a.log")
	if err != nil {
		t.Fatal(err)
	}
	return path, info.Ino
}

// database returns a database of Fluent Bit with one position.
func database(t testing.TB, name string, inode uint64, offset int64) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec("CREATE TABLE in_tail_files (id INTEGER PRIMARY KEY, name TEXT NOT NULL, "+
		"offset INTEGER, inode INTEGER, created INTEGER, rotated INTEGER DEFAULT 0); "+
		"INSERT INTO in_tail_files (name, offset, inode) VALUES (?, ?, ?)", name, offset, inode)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// carried imports stored positions with the contents text.
func carried(t *testing.T, dir string, s stored, text []byte) (migrate.Carried, error) {
	t.Helper()
	path := filepath.Join(dir, s.path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	r, err := s.convert(dir)
	if err != nil || len(r.Progress) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	return r.Progress[0].Carry(osfs.New(), dir)
}

// FuzzCarry imports damaged files of stored positions. The new positions must be in the log file.
func FuzzCarry(f *testing.F) {
	dir := f.TempDir()
	path, inode := logFile(f, dir)
	for i, s := range storing {
		text := []byte(fmt.Sprintf(s.sample, inode, path))
		if s.sample == "" {
			text = database(f, path, inode, 4)
		}
		f.Add(i, text)
	}
	f.Fuzz(func(t *testing.T, i int, text []byte) {
		if i < 0 || i >= len(storing) {
			return
		}
		c, err := carried(t, dir, storing[i], text)
		if err != nil {
			return
		}
		for _, m := range slices.Concat(c.Marks, c.Begun) {
			if m.Watermark.Num < 0 || m.Watermark.Num > int64(len("one\ntwo\nthree")) {
				t.Errorf("the position is %d", m.Watermark.Num)
			}
		}
	})
}

// TestCarryNegativePosition imports negative positions. The files must be read from their
// beginnings, with a note.
func TestCarryNegativePosition(t *testing.T) {
	dir := t.TempDir()
	path, inode := logFile(t, dir)
	for _, s := range storing {
		sample := strings.Replace(s.sample, `"pos":4`, `"pos":-4`, 1)
		text := []byte(fmt.Sprintf(sample, inode, path))
		switch {
		case s.sample == "":
			text = database(t, path, inode, -4)
		case sample == s.sample: // Filebeat's negative positions count as unread
			continue
		}
		c, err := carried(t, dir, s, text)
		if err != nil || len(c.Marks) != 0 || len(c.Begun) != 1 || c.Begun[0].Watermark.Num != 0 ||
			!strings.Contains(fmt.Sprint(c.Notes), "-4, is invalid: it is read from its") {
			t.Errorf("%s: %+v, %v", s.path, c, err)
		}
	}
}

// TestCarryDamaged imports files of stored positions that another program has damaged. The damage
// must be reported: by an error, or by a note if the undamaged positions are used.
func TestCarryDamaged(t *testing.T) {
	dir := t.TempDir()
	path, inode := logFile(t, dir)
	for i, want := range []string{"pos.json cannot be used", "checkpoints.json cannot be used",
		"", "7.json", "DB "} {
		if want == "" {
			continue // see TestCarryDamagedLog
		}
		s := storing[i]
		text := []byte(fmt.Sprintf(s.sample, inode, path))
		if s.sample == "" {
			text = database(t, path, inode, 4)
		}
		c, err := carried(t, dir, s, text[:len(text)*2/3])
		if got := fmt.Sprint(err, c.Notes); !strings.Contains(got, want) || len(c.Marks) > 0 {
			t.Errorf("%s: %s; want %s", s.path, got, want)
		}
	}
}

// TestCarryDamagedLog imports damaged logs of Filebeat's registry. If only the last change is
// incomplete, the other changes must be used, with a note. Other damage must be an error.
func TestCarryDamagedLog(t *testing.T) {
	dir := t.TempDir()
	path, inode := logFile(t, dir)
	folder := filepath.Join(dir, "stored/registry/filebeat")
	if err := os.Remove(filepath.Join(folder, "active.dat")); err != nil {
		t.Fatal(err)
	}
	set := fmt.Sprintf(storing[2].sample, inode, path)
	op, entry, _ := strings.Cut(set, "\n")
	invalid := op + "\n" + `{"k":"filestream::i::native::1-1","v":{"cursor":7}}` + "\n"
	torn := func(line int) string {
		return fmt.Sprintf("the last change in log.json in %s, at line %d, is incomplete", folder,
			line)
	}
	unusable := func(why string) string {
		return folder + " cannot be used: restore it, or move it away, so that the option start " +
			"applies to every file of Filebeat: log.json: line " + why
	}
	for _, c := range []struct {
		name, text, want string
		marks            int
	}{
		{"whole", set, "1 of 1 files", 1},
		{"empty", "", "0 of 0 files", 0},
		{"torn entry", set[:len(set)*2/3], torn(1), 0},
		{"torn entry after another change", set + set[:len(set)*2/3], torn(3), 1},
		{"torn operation", set + op[:5], torn(3), 1},
		{"operation without entry", set + op + "\n", torn(3), 1},
		{"zeros at the end", set + "\x00\x00\x00", torn(3), 1},
		{"damaged operation", set + "{\n" + entry + set, unusable("3: the change is damaged"), 0},
		{"damaged entry", op + "\n{\n" + set, unusable("1: the change is damaged"), 0},
		{"missing line", entry + set + set, unusable("1: the change is damaged"), 0},
		{"damage before torn change", op + "\n{\n{", unusable("1: the change is damaged"), 0},
		{"invalid entry", set + invalid + set, unusable("4: entry \"filestream::i::native::1-1\""),
			0},
		{"invalid entry at the end", set + invalid, unusable("4: entry"), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := carried(t, dir, storing[2], []byte(c.text))
			if said := fmt.Sprint(err, got.Notes); !strings.Contains(said, c.want) ||
				len(got.Marks) != c.marks || (err != nil) != strings.Contains(c.want, "cannot be") {
				t.Errorf("%d marks, %s; want %s", len(got.Marks), said, c.want)
			}
		})
	}
}
