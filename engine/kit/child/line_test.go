package child_test

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/child"
)

func TestReadLine(t *testing.T) {
	const most = 1000
	long := strings.Repeat("x", 900)
	for _, c := range []struct {
		name, text string
		lines      []string
		end        string // "": io.EOF
	}{
		{"nothing", "", nil, ""},
		{"lines", "a\n\nb\r\n", []string{"a", "", "b"}, ""},
		{"the last has no end", "a\nb", []string{"a"}, ""},
		{"longer than the buffer", long + "\nb\n", []string{long, "b"}, ""},
		{"too long", "a\n" + strings.Repeat("y", 2000), []string{"a"}, "more than 1000 bytes"},
	} {
		in := bufio.NewReaderSize(strings.NewReader(c.text), 16)
		for _, want := range c.lines {
			if got, err := child.ReadLine(in, most); err != nil || string(got) != want {
				t.Errorf("%s: %.20q, %v, want %.20q", c.name, got, err, want)
			}
		}
		_, err := child.ReadLine(in, most)
		if c.end == "" && err != io.EOF || c.end != "" &&
			(err == nil || !strings.Contains(err.Error(), c.end) || len(err.Error()) > 400) {
			t.Errorf("%s ends with %v, want %q", c.name, err, c.end)
		}
	}
}
