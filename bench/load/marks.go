// Package load makes what the workloads read: log lines that carry a number each, as a file or
// live, and it counts, of what arrived, which numbers are missing and which came twice. It knows no
// program that is measured.
package load

import (
	"bytes"
	"io"
	"math/bits"
	"sync/atomic"
	"time"
)

// Every line holds one mark, ~000000123456~, its number; a live line's mark goes on with the time
// at which it was written, in microseconds since 1970: ~000000123456~0001763736000123~. A tilde is
// in no generated line, is escaped by no format that a program writes, and is found at the speed of
// memchr.
const (
	tilde       = '~'
	numberWidth = 12
	timeWidth   = 16
)

// Marks is the set of numbers that arrived. It may be used by many goroutines.
type Marks struct {
	words    []atomic.Uint64
	limit    uint64
	repeated atomic.Int64
	unknown  atomic.Int64
	delays   Delays
}

// NewMarks expects the numbers 0 to records-1.
func NewMarks(records int64) *Marks {
	return &Marks{words: make([]atomic.Uint64, (records+63)/64), limit: uint64(records)}
}

// Add looks at text that holds whole lines, of whatever format, and returns how many marks it saw.
func (m *Marks) Add(text []byte) (seen int64) {
	for {
		i := bytes.IndexByte(text, tilde)
		if i < 0 {
			return seen
		}
		text = text[i+1:]
		number, ok := digits(text, numberWidth)
		if !ok {
			continue
		}
		seen++
		m.note(number)
		text = text[numberWidth+1:]
		if written, ok := digits(text, timeWidth); ok {
			m.delays.Add(time.Since(time.UnixMicro(int64(written))))
			text = text[timeWidth+1:]
		}
	}
}

func (m *Marks) note(number uint64) {
	if number >= m.limit {
		m.unknown.Add(1)
		return
	}
	bit := uint64(1) << (number % 64)
	if m.words[number/64].Or(bit)&bit != 0 {
		m.repeated.Add(1)
	}
}

// digits reads a number of the given width that a tilde ends.
func digits(text []byte, width int) (n uint64, ok bool) {
	if len(text) <= width || text[width] != tilde {
		return 0, false
	}
	for _, c := range text[:width] {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	return n, true
}

// AddFrom looks at all that r gives; its lines end in \n.
func (m *Marks) AddFrom(r io.Reader) error {
	buf, kept := make([]byte, 1<<20), 0
	for {
		n, err := r.Read(buf[kept:])
		n += kept
		whole := bytes.LastIndexByte(buf[:n], '\n') + 1
		if err != nil || whole == 0 && n == len(buf) {
			whole = n
		}
		m.Add(buf[:whole])
		kept = copy(buf, buf[whole:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Unique is how many of the expected numbers came.
func (m *Marks) Unique() (n int64) {
	for i := range m.words {
		n += int64(bits.OnesCount64(m.words[i].Load()))
	}
	return n
}

// Lost is how many of the expected numbers did not come.
func (m *Marks) Lost() int64 { return int64(m.limit) - m.Unique() }

// Repeated is how often a number came that was there.
func (m *Marks) Repeated() int64 { return m.repeated.Load() }

// Unknown is how many numbers were none of the expected.
func (m *Marks) Unknown() int64 { return m.unknown.Load() }

// Delay is the given quantile of the times from writing a line to its arrival; 0 where lines carry
// no time.
func (m *Marks) Delay(quantile float64) time.Duration { return m.delays.Quantile(quantile) }
