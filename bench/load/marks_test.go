package load

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestMarksCountLostAndRepeated(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var text bytes.Buffer
	came := map[int]int{}
	for range 5000 {
		n := rnd.IntN(4000)
		came[n]++
		fmt.Fprintf(&text, "%s ~ ~12~ {\"id\":\"~%012d~\"}\n",
			strings.Repeat("x", rnd.IntN(400)), n)
	}
	m := NewMarks(4000)
	if err := m.AddFrom(&slow{text.Bytes(), rnd}); err != nil {
		t.Fatal(err)
	}
	if got, want := m.Unique(), int64(len(came)); got != want {
		t.Errorf("unique %d, want %d", got, want)
	}
	if got, want := m.Lost(), int64(4000-len(came)); got != want {
		t.Errorf("lost %d, want %d", got, want)
	}
	if got, want := m.Repeated(), int64(5000-len(came)); got != want {
		t.Errorf("repeated %d, want %d", got, want)
	}
	m.Add([]byte("~000000004000~"))
	if m.Unknown() != 1 {
		t.Errorf("a number beyond the expected counts as %d unknown, want 1", m.Unknown())
	}
}

// slow gives pieces that end anywhere.
type slow struct {
	left []byte
	rnd  *rand.Rand
}

func (s *slow) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), 1+s.rnd.IntN(300))], s.left)
	s.left = s.left[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestBlockNumbersItsLines(t *testing.T) {
	b := &Block{timed: true}
	for i := range 3 {
		b.text = append(b.text, fmt.Sprintf("line %d ~", i)...)
		b.holes = append(b.holes, len(b.text))
		b.text = append(b.text, "000000000000~0000000000000000~\n"...)
		b.ends = append(b.ends, len(b.text))
	}
	now := time.Now()
	got := string(b.Number(1, 3, 41, now))
	want := fmt.Sprintf("line 1 ~000000000041~%016d~\nline 2 ~000000000042~%016d~\n",
		now.UnixMicro(), now.UnixMicro())
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	m := NewMarks(42) // 42 is not expected
	if first, again := m.Add([]byte(got)), m.Add([]byte(got)); first != 1 || again != 0 {
		t.Errorf("%d new records, then %d, want 1 and 0", first, again)
	}
	if m.Unique() != 1 || m.Delay(.5) <= 0 || m.Delay(.5) > time.Minute {
		t.Errorf("%d unique, delay %v", m.Unique(), m.Delay(.5))
	}
}

func TestQuantiles(t *testing.T) {
	var d Delays
	for i := range 1000 {
		d.Add(time.Duration(i+1) * time.Millisecond)
	}
	for _, q := range []float64{.01, .5, .99} {
		got, want := d.Quantile(q).Seconds(), q
		if got < want*.92 || got > want*1.01 {
			t.Errorf("quantile %v is %v", q, got)
		}
	}
}
