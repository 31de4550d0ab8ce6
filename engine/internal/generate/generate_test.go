package generate

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "write testdata")

func lines(t testing.TB, format string, seed uint64, n int64) []byte {
	t.Helper()
	g, err := New(format, seed)
	if err != nil {
		t.Fatal(err)
	}
	out, got := g.Lines(nil, n, 1<<30)
	if got != n {
		t.Fatalf("Lines(%d) made %d", n, got)
	}
	return out
}

// TestSameSeedSameBytes compares the lines with golden files. Users may rely on a published seed,
// so the lines of a seed must never change.
func TestSameSeedSameBytes(t *testing.T) {
	for _, format := range Formats {
		golden := filepath.Join("testdata", format+".golden")
		got := lines(t, format, 1, 20)
		if *update {
			if err := os.WriteFile(golden, got, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s lines of seed 1 have changed:\n%s", format, got)
		}
		if bytes.Equal(got, lines(t, format, 2, 20)) {
			t.Errorf("%s: seeds 1 and 2 give the same lines", format)
		}
	}
}

var (
	commonForm = regexp.MustCompile(`^\S+ - \S+ \[\d\d/[A-Z][a-z]{2}/\d{4}(:\d\d){3} \+0000\] ` +
		`"[A-Z]+ /\S* HTTP/[12]\.[01]" \d{3} (\d+|-)$`)
	combinedForm = regexp.MustCompile(`^(.*) "[^"\\]*" "([^"\\]|\\.)*"$`)
)

func TestLinesHaveTheirForm(t *testing.T) {
	for i, line := range bytes.Split(bytes.TrimSuffix(lines(t, "common", 7, 20_000), []byte("\n")),
		[]byte("\n")) {
		if !commonForm.Match(line) {
			t.Fatalf("common line %d: %s", i+1, line)
		}
	}
	for i, line := range bytes.Split(bytes.TrimSuffix(lines(t, "combined", 7, 20_000),
		[]byte("\n")), []byte("\n")) {
		m := combinedForm.FindSubmatch(line)
		if m == nil || !commonForm.Match(m[1]) {
			t.Fatalf("combined line %d: %s", i+1, line)
		}
	}
}

// TestTrafficIsMixed checks that the lines contain every kind of response, in realistic shares.
func TestTrafficIsMixed(t *testing.T) {
	const n = 50_000
	statuses, users, hosts := map[string]int{}, 0, map[string]int{}
	for line := range bytes.Lines(lines(t, "common", 3, n)) {
		fields := bytes.Fields(line)
		statuses[string(fields[len(fields)-2])]++
		hosts[string(fields[0])]++
		if string(fields[2]) != "-" {
			users++
		}
	}
	for _, want := range []struct {
		status      string
		least, most int
	}{
		{"200", n / 2, n * 9 / 10}, {"304", n / 100, n / 10}, {"404", n / 200, n / 20},
		{"500", n / 1000, n / 50}, {"503", n / 2000, n / 100},
		{"201", n / 200, n / 5}, {"422", 1, n / 100},
	} {
		if got := statuses[want.status]; got < want.least || got > want.most {
			t.Errorf("status %s in %d of %d lines; want %d to %d", want.status, got, n, want.least,
				want.most)
		}
	}
	if len(hosts) < visitorCount/2 || users < n/50 || users > n/2 {
		t.Errorf("%d hosts, %d lines with a user", len(hosts), users)
	}
}

func TestJSONIsDeepAndValid(t *testing.T) {
	kinds := map[string]bool{}
	for line := range bytes.Lines(lines(t, "json", 5, 5_000)) {
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		var v map[string]any
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		request := v["request"].(map[string]any)
		if _, ok := request["client"].(map[string]any)["user"].(map[string]any); ok {
			kinds["user"] = true
		} else {
			kinds["null"] = true
		}
		for _, key := range []string{"cart", "error"} {
			if _, ok := v[key]; ok {
				kinds[key] = true
			}
		}
	}
	if len(kinds) != 4 {
		t.Errorf("5000 lines hold only %v", kinds)
	}
}

func TestUnknownFormat(t *testing.T) {
	_, err := New("xml", 1)
	if err == nil || err.Error() != `there is no format "xml"; the formats are combined, common, json` {
		t.Errorf("New(xml) = %v", err)
	}
}

func TestLinesStopAtTheBound(t *testing.T) {
	g, err := New("combined", 1)
	if err != nil {
		t.Fatal(err)
	}
	out, n := g.Lines(nil, 1000, 4096)
	if n == 1000 || len(out) < 4096 || len(out) > 4096+1024 ||
		int64(bytes.Count(out, []byte("\n"))) != n {
		t.Errorf("Lines bounded at 4096 bytes made %d lines, %d bytes", n, len(out))
	}
}

// TestNoAllocations checks that generating lines allocates no memory. Otherwise the generator could
// slow down the program that is measured with its lines.
func TestNoAllocations(t *testing.T) {
	for _, format := range Formats {
		g, err := New(format, 1)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 0, 64<<10)
		if n := testing.AllocsPerRun(100, func() {
			buf, _ = g.Lines(buf[:0], 50, cap(buf))
		}); n != 0 {
			t.Errorf("%s: %v allocations in 50 lines, want 0", format, n)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	for _, format := range Formats {
		b.Run(format, func(b *testing.B) {
			g, err := New(format, 1)
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 0, 64<<10)
			b.ReportAllocs()
			for b.Loop() {
				buf = g.Append(buf[:0])
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}
