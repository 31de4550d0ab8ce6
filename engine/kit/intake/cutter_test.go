package intake

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// texts returns the records as a route would read them.
func (r *Records) texts() (out []string) {
	if r.ends == nil {
		for line := range bytes.SplitSeq(bytes.TrimSuffix(r.data, newline), newline) {
			if r.count > 0 {
				out = append(out, string(line))
			}
		}
		return out
	}
	start := 0
	for _, end := range r.ends {
		out = append(out, string(r.data[start:end-1]))
		start = int(end)
	}
	return out
}

// cutAll reads r to its end.
func cutAll(t *testing.T, c *Cutter, r io.Reader) (out []string) {
	t.Helper()
	for {
		n, err := r.Read(c.Space())
		records := c.Cut(n)
		texts := records.texts()
		if len(texts) != records.Len() {
			t.Fatalf("%d records, counted %d: %q", len(texts), records.Len(), texts)
		}
		out = append(out, texts...)
		if err == io.EOF {
			end := c.End()
			return append(out, end.texts()...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCutter(t *testing.T) {
	long := strings.Repeat("x", 25)
	for _, c := range []struct {
		in    string
		delim byte
		want  []string
		long  int64
	}{
		{"", '\n', nil, 0},
		{"a\nb\n", '\n', []string{"a", "b"}, 0},
		{"a\n\nlast", '\n', []string{"a", "", "last"}, 0},
		{"a\n" + long + "\nb\n", '\n', []string{"a", "xxxxxxxxxx", "xxxxxxxxxx", "xxxxx", "b"}, 2},
		{long, '\n', []string{"xxxxxxxxxx", "xxxxxxxxxx", "xxxxx"}, 2},
		{"0123456789\nb", '\n', []string{"0123456789", "b"}, 0},
		{"a\nb\x00\x00c", 0, []string{"a\nb", "", "c"}, 0},
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(c.in), "bytes": iotest.OneByteReader(strings.NewReader(c.in)),
		} {
			cutter := NewCutter(10, c.delim, 32)
			got := cutAll(t, cutter, r)
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) || cutter.Long() != c.long {
				t.Errorf("%s of %q: %q, want %q with %d cuts", name, c.in, got, c.want, c.long)
			}
		}
	}
}

// TestCutterKeepsAll checks that no byte is lost and no record is too long, for any sizes of reads.
func TestCutterKeepsAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var in []byte
		for range random.IntN(30) {
			in = append(in, bytes.Repeat([]byte{'a' + byte(random.IntN(26))}, random.IntN(40))...)
			in = append(in, '\n')
		}
		r := iotest.HalfReader(bytes.NewReader(in))
		got := cutAll(t, NewCutter(1+random.IntN(30), '\n', 1+random.IntN(64)), r)
		want := strings.ReplaceAll(string(in), "\n", "")
		if strings.Join(got, "") != want {
			t.Fatalf("got %q of %q", got, in)
		}
	}
}
