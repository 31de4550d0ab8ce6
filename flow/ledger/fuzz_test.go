package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// items is the number of items in the model, numbered from 1.
const items = 96

// model is a simple ledger, with one bit for each item.
type model struct {
	opened, settled [items + 1]bool
	tail            int
}

// place returns a position of item n that uses both number and key, in the order of the items.
func place(n int) Position {
	p := Position{Num: int64(n / 3)}
	if n%3 > 0 {
		p.Key = string(rune('a' + n%3))
	}
	return p
}

func between(from, to int) Range { return Range{place(from), place(to)} }

// next returns the start of the model's next range, after ranges settled before a restart.
func (m *model) next() int {
	for m.tail < items && m.settled[m.tail+1] && !m.opened[m.tail+1] {
		m.tail++
	}
	return m.tail
}

func (m *model) open(from, to int) bool {
	if from != m.next() || to < from || to > items {
		return false
	}
	for n := from + 1; n <= to; n++ {
		if m.settled[n] {
			return false
		}
	}
	for n := from + 1; n <= to; n++ {
		m.opened[n] = true
	}
	m.tail = to
	return true
}

func (m *model) settle(from, to int) (fresh bool) {
	if to > m.next() {
		return false
	}
	for n := from + 1; n <= to; n++ {
		fresh = fresh || !m.settled[n]
		m.settled[n] = true
	}
	return fresh
}

func (m *model) mark() (watermark int, above []Range) {
	for watermark < items && m.settled[watermark+1] {
		watermark++
	}
	for n := watermark + 1; n <= items; n++ {
		from := n - 1
		for n <= items && m.settled[n] {
			n++
		}
		if n-1 > from {
			above = append(above, between(from, n-1))
		}
	}
	return watermark, above
}

// restart makes all open ranges unread again, as a crash does.
func (m *model) restart() {
	m.opened = [items + 1]bool{}
	m.tail, _ = m.mark()
}

// play carries out the operations in program on the ledger and on the model, and compares the two
// after each operation. An operation has three bytes.
func play(t *testing.T, program []byte) {
	t.Helper()
	var m model
	l, err := New(Position{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for step := 0; len(program) >= 3; step++ {
		op, a, b := program[0]%8, int(program[1])%(items+1), int(program[2])%(items+1)
		program = program[3:]
		switch op {
		case 0, 1: // the next range, up to four items
			a = m.next()
			b = min(items, a+b%5)
			fallthrough
		case 2: // any range, usually refused
			if got, want := l.Open(between(a, b)) == nil, m.open(a, b); got != want {
				t.Fatalf("step %d: Open(%d, %d) accepted %v, want %v", step, a, b, got, want)
			}
		case 3, 4: // one item
			b = min(items, a+1)
			fallthrough
		case 5, 6: // any range of items
			if op > 4 {
				b = min(items, a+b%7)
			}
			if got, want := l.Settle(between(a, b)), m.settle(a, b); got != want {
				t.Fatalf("step %d: Settle(%d, %d) = %v, want %v", step, a, b, got, want)
			}
		case 7:
			if b%4 > 0 {
				continue // restarts are rarer than other operations
			}
			w, above := l.Progress()
			if l, err = New(w, above); err != nil {
				t.Fatalf("step %d: New from its own mark %v %v: %v", step, w, above, err)
			}
			m.restart()
		}
		w, above := l.Progress()
		mw, mabove := m.mark()
		if w != place(mw) || !slices.Equal(above, mabove) {
			t.Fatalf("step %d: mark is %v %v, want %v %v", step, w, above, place(mw), mabove)
		}
		if l.Next() != place(m.next()) {
			t.Fatalf("step %d: next is %v, want %v", step, l.Next(), place(m.next()))
		}
		if l.Pending() < 0 || l.Pending() == 0 && l.Watermark() != l.Next() {
			t.Fatalf("step %d: %d pending between %v and %v", step, l.Pending(), l.Watermark(),
				l.Next())
		}
	}
}

func FuzzLedger(f *testing.F) {
	// 1, 3, 4; then 2; then 3 again
	f.Add([]byte{0, 0, 4, 3, 0, 0, 3, 2, 0, 3, 3, 0, 3, 1, 0, 3, 2, 0})
	f.Add([]byte{0, 0, 4, 0, 0, 4, 5, 1, 2, 7, 0, 0, 0, 0, 1, 3, 0, 0, 0, 0, 4})
	f.Add([]byte{2, 5, 9, 0, 0, 4, 6, 0, 6, 5, 1, 3, 3, 0, 0})
	f.Fuzz(play)
}

// TestAgainstModel runs long random programs, so that ordinary tests search beyond the corpus.
func TestAgainstModel(t *testing.T) {
	const seed = 20261121
	src := rand.NewChaCha8([32]byte{seed & 0xff, seed >> 8 & 0xff, seed >> 16 & 0xff})
	for range 150 {
		program := make([]byte, 3*300)
		_, _ = src.Read(program)
		play(t, program)
	}
}
