// Package load generates the input of workloads, log lines that each contain a number, as files or
// live. It counts the missing and repeated numbers in the output. It is independent of the measured
// programs.
package load

import (
	"bytes"
	"io"
	"math/bits"
	"sync/atomic"
	"time"
)

// Every line contains one mark, ~000000123456~, with its number. The mark of a live line also
// contains its time of writing, in microseconds since 1970: ~000000123456~0001763736000123~. A
// tilde occurs in no generated line, is not escaped in any output format, and can be found at the
// speed of memchr.
const (
	tilde       = '~'
	numberWidth = 12
	timeWidth   = 16
)

// Marks is the set of received numbers. It is safe for concurrent use.
type Marks struct {
	words    []atomic.Uint64
	limit    uint64
	repeated atomic.Int64
	unknown  atomic.Int64
	delays   Delays
}

// NewMarks returns a set for the expected numbers 0 to records-1.
func NewMarks(records int64) *Marks {
	return &Marks{words: make([]atomic.Uint64, (records+63)/64), limit: uint64(records)}
}

// Add adds the marks in text, which must consist of whole lines in any format, and returns their
// number.
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

// digits parses a number of the given width, terminated by a tilde.
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

// AddFrom adds all marks from r, whose lines end with \n.
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

// Unique returns the number of different expected numbers received.
func (m *Marks) Unique() (n int64) {
	for i := range m.words {
		n += int64(bits.OnesCount64(m.words[i].Load()))
	}
	return n
}

// Lost returns the number of expected numbers not received.
func (m *Marks) Lost() int64 { return int64(m.limit) - m.Unique() }

// Repeated returns the number of repetitions.
func (m *Marks) Repeated() int64 { return m.repeated.Load() }

// Unknown returns the number of unexpected numbers.
func (m *Marks) Unknown() int64 { return m.unknown.Load() }

// Delay returns a quantile of the times from writing a line to its arrival; 0 if lines have no
// time.
func (m *Marks) Delay(quantile float64) time.Duration { return m.delays.Quantile(quantile) }
