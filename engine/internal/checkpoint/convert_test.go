package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestConvert converts a log to the previous format. A program that knows only that format, and
// then this program, must find the same contents in it. The original log must be kept as a copy.
func TestConvert(t *testing.T) {
	w := writeSteps(t, goldenSteps("a note"))
	m, dir := memory(t, w.log)
	aside, err := Convert(dir, OldestFormat)
	if want := fmt.Sprintf("%s.v%d-1", Name, Format); err != nil || aside != want {
		t.Fatalf("Convert: %q, %v; want the copy %s", aside, err, want)
	}
	if got, err := m.ReadFile("/state/" + aside); !bytes.Equal(got, w.log) || err != nil {
		t.Errorf("the copy has %d bytes, %v; want the %d of the log", len(got), err, len(w.log))
	}
	for _, reader := range []uint16{OldestFormat, Format} {
		s, _ := mustOpen(t, dir, Options{version: reader})
		if got := contents(s).String(); got != w.held[len(w.held)-1] {
			t.Errorf("format %d: %s, want %s", reader, got, w.held[len(w.held)-1])
		}
		must(t, s.Close())
	}
}

// TestConvertRefuses passes logs that the older format cannot represent, and formats that Convert
// does not write. Convert must refuse them and change nothing.
func TestConvertRefuses(t *testing.T) {
	waiting := stream.Mark{Part: stream.Partition{ID: "p", Name: "p"},
		Watermark: stream.Position{Num: 7}, Waiting: true}
	plain := writeSteps(t, goldenSteps("")).log
	damaged := bytes.Clone(plain)
	damaged[len(damaged)/2] ^= 1
	for _, c := range []struct {
		name   string
		log    []byte
		format uint16
		want   string
	}{
		{"waiting", writeSteps(t, []step{{route: "p/main", marks: []stream.Mark{waiting}}}).log, 2,
			"1 partitions have batches that wait for a retry"},
		{"damaged", damaged, 2, "damaged at byte"},
		{"format 1", plain, 1, "this program writes the formats 2 to 3, not 1"},
		{"newer format", plain, Format + 1, "not 4"},
	} {
		m, dir := memory(t, c.log)
		if _, err := Convert(dir, c.format); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if got, _ := m.ReadFile("/state/" + Name); !bytes.Equal(got, c.log) {
			t.Errorf("%s: the log has changed", c.name)
		}
	}
	if _, err := Convert(stateDir(t, vfstest.New()), 2); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a log: %v", err)
	}
}
