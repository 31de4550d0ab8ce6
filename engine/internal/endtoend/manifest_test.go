package endtoend

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// manifestFile is the part of a manifest that TestManifest checks.
type manifestFile struct {
	Version int
	OK      bool
	Routes  []struct {
		Pipeline, Route   string
		Delivered, Parked int64
		Partitions        []struct {
			Name, From, To, SHA256                   string
			Records, Bytes, Delivered, Dead, Dropped int64
		}
	}
}

// TestManifest checks that the manifest of a run has every file with its counts and hash. The test
// computes these from the files itself. If a file has grown, the manifest of the second run has
// only the added part.
func TestManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spool := filepath.Join(dir, "spool")
	files := map[string][]byte{}
	for i := range 5 {
		var text bytes.Buffer
		for n := range 3000 * i {
			fmt.Fprintf(&text, "line %d of file %d\n", n, i)
		}
		if i == 3 {
			text.WriteString("a last line without an end")
		}
		name := fmt.Sprintf("%d.log", i)
		files[name] = text.Bytes()
		write(t, filepath.Join(spool, name), text.String())
	}
	config := write(t, filepath.Join(dir, "penstock.yaml"), `
pipelines:
  m:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 1ms } }
    routes:
      one: { sink: drop, batch: { bytes: 4KiB } }
      two: { sink: { file: { path: ./out.log, format: raw } } }
`)
	for i, m := range runManifest(t, config, 2).Routes {
		seen := 0
		for _, p := range m.Partitions {
			text, known := files[p.Name]
			if !known {
				t.Fatalf("the manifest names %q", p.Name)
			}
			if len(text) == 0 {
				continue
			}
			seen++
			lines := int64(bytes.Count(text, []byte("\n")))
			if text[len(text)-1] != '\n' {
				lines++
			}
			sum := sha256.Sum256(text)
			if p.SHA256 != hex.EncodeToString(sum[:]) || p.Records != lines ||
				p.Delivered != lines || p.Bytes != int64(len(text)) ||
				p.From != "0" || p.To != strconv.Itoa(len(text)) || p.Dead+p.Dropped != 0 {
				t.Errorf("route %d: %+v, and the file has %d lines, %d bytes, hash %x", i, p, lines,
					len(text), sum)
			}
		}
		if seen != 4 {
			t.Errorf("route %d names %d of 4 files with data", i, seen)
		}
	}
	more := "one more line\n"
	write(t, filepath.Join(spool, "1.log"), string(files["1.log"])+more)
	sum := sha256.Sum256([]byte(more))
	for _, m := range runManifest(t, config, 2).Routes {
		for _, p := range m.Partitions {
			switch {
			case p.Name != "1.log":
				if p.Bytes != 0 || p.Records != 0 || p.From != p.To || p.SHA256 != "" {
					t.Errorf("of a file in which nothing is new: %+v", p)
				}
			case p.SHA256 != hex.EncodeToString(sum[:]) || p.Records != 1 ||
				p.From != strconv.Itoa(len(files["1.log"])):
				t.Errorf("of the file that grew: %+v", p)
			}
		}
	}
}

// TestManifestHash checks that a manifest has the hash of a file's bytes, after decompression. If
// the reader has changed the bytes, for example by decoding UTF-16, the manifest must have no hash.
// This must hold even if the changed text is as long as the file.
func TestManifestHash(t *testing.T) {
	t.Parallel()
	packed := func(text string) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		return out.String()
	}
	for _, c := range []struct {
		name, options, file string
		hashed              string // the text with the hash; empty: none
	}{
		{"utf-16", "encoding: utf-16le", "\x2d\x4e\n\x00", ""},
		{"latin-1", "encoding: latin-1", "caf\xe9\n", ""},
		{"delimiter", `framing: { by: delimiter, delimiter: "\0" }`, "a\x00bc\x00", "a\x00bc\x00"},
		{"cri", "framing: { by: multiline, preset: cri }",
			"2024-01-01T00:00:00Z stdout F a\n", ""},
		{"cut", "max_record: 4B", "abcdefgh", "abcdefgh"},
		{"dead-lettered", "max_record: 4B, long_record: dead_letter", "ab\nabcde", ""},
		{"gzip", "compression: auto", packed("a\nbc\n"), "a\nbc\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "spool", "a.log"), c.file)
			config := write(t, filepath.Join(dir, "penstock.yaml"), `
pipelines:
  m:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 1ms, `+c.options+` } }
    sink: drop
`)
			want := ""
			if c.hashed != "" {
				sum := sha256.Sum256([]byte(c.hashed))
				want = hex.EncodeToString(sum[:])
			}
			p := runManifest(t, config, 1).Routes[0].Partitions[0]
			if p.SHA256 != want || p.Records == 0 {
				t.Errorf("%d records, hash %q, want %q", p.Records, p.SHA256, want)
			}
		})
	}
}

// TestManifestOfInput checks that the manifest has the hash of standard input. It must have none if
// the records with their line ends differ from the input: if a record was cut, the last line end is
// missing, or the delimiter is another byte.
func TestManifestOfInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options, text string
		hashed        bool
	}{
		{"{}", "a\nbc\r\n", true},
		// split into two submissions
		{"{ memory: 8MiB, max_record: 2MiB }", strings.Repeat("x", 2<<20) + "\nb\n", true},
		{"{}", "a\nbc", false},
		{"{ max_record: 4B }", "abcdefgh\n", false},
		{"{ delimiter: nul }", "a\x00bc\x00", false},
	} {
		dir := t.TempDir()
		config := write(t, filepath.Join(dir, "penstock.yaml"), `
pipelines:
  m:
    source: { stdin: `+c.options+` }
    sink: drop
`)
		path := filepath.Join(dir, "manifest.json")
		command := exec.Command(programOf(t), "run", "--once", "--manifest", path, config)
		command.Stdin = strings.NewReader(c.text)
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var m manifestFile
		if err := json.Unmarshal(read(t, path), &m); err != nil {
			t.Fatal(err)
		}
		want := ""
		if c.hashed {
			sum := sha256.Sum256([]byte(c.text))
			want = hex.EncodeToString(sum[:])
		}
		if got := m.Routes[0].Partitions[0].SHA256; got != want {
			t.Errorf("%.20q with %s: hash %q, want %q", c.text, c.options, got, want)
		}
	}
}

// TestManifestOfCopy replaces a file by a longer copy with the same modification time. The file was
// read before. The manifest of the next run must have the hash of the added bytes only.
func TestManifestOfCopy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := strings.Repeat("a line of the first run\n", 100)
	logs := filepath.Join(dir, "logs", "a.log")
	write(t, logs, text)
	config := write(t, filepath.Join(dir, "penstock.yaml"), `
state: ./state
pipelines:
  m:
    source: { tail: { include: ['./logs/*.log'] } }
    sink: drop
`)
	runManifest(t, config, 1)
	const added = "b\n"
	old, err := os.Stat(logs)
	if err != nil {
		t.Fatal(err)
	}
	other := write(t, filepath.Join(dir, "copy"), text+added)
	if err := os.Chtimes(other, old.ModTime(), old.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, logs); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(added))
	p := runManifest(t, config, 1).Routes[0].Partitions[0]
	if want := hex.EncodeToString(sum[:]); p.SHA256 != want || p.Records != 1 {
		t.Errorf("%d records, hash %q, want %q", p.Records, p.SHA256, want)
	}
}

// TestManifestOfParked checks that the manifest does not count a record as delivered while the sink
// has only parked it (stored it for a later delivery).
func TestManifestOfParked(t *testing.T) {
	t.Parallel()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer busy.Close()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "spool", "one.log"), fmt.Sprintf(`{"to":%q,"order":"7"}`, busy.URL))
	_, port, _ := strings.Cut(strings.TrimPrefix(busy.URL, "http://"), ":")
	config := write(t, filepath.Join(dir, "penstock.yaml"), `
pipelines:
  m:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 1ms } }
    processors: [ { parse: { format: json } } ]
    sink:
      http:
        url: to
        idempotency_key: order
        allow: { hosts: [127.0.0.1], ports: [`+port+`], private: true, http: true }
`)
	if r := runManifest(t, config, 1).Routes[0]; r.Delivered != 0 || r.Parked != 1 {
		t.Errorf("%d records delivered and %d parked, want 0 and 1", r.Delivered, r.Parked)
	}
}

// runManifest runs a config and returns its manifest, which must have the given number of routes.
func runManifest(t *testing.T, config string, routes int) (m manifestFile) {
	t.Helper()
	path := filepath.Join(filepath.Dir(config), "manifest.json")
	if out, err := exec.Command(programOf(t), "run", "--once", "--manifest", path,
		config).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(read(t, path), &m); err != nil || m.Version != 1 || !m.OK ||
		len(m.Routes) != routes {
		t.Fatalf("%v: %s", err, read(t, path))
	}
	return m
}
