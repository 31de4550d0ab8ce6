//go:build linux

package faults

import (
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"
)

// record returns the line of record n. It contains the number and a checksum, so that a receiver
// can detect damaged and invented records in any format.
func record(n, size int) string {
	body := fmt.Sprintf("r%06d:%s", n, strings.Repeat(string(rune('a'+n%26)), size))
	return fmt.Sprintf("%s:%08x", body, crc32.ChecksumIEEE([]byte(body)))
}

func records(from, to, size int) []string {
	lines := make([]string, 0, to-from)
	for n := from; n < to; n++ {
		lines = append(lines, record(n, size))
	}
	return lines
}

// tally counts how often each record was received.
type tally struct {
	copies  map[int]int
	invalid []string // lines that hold no record, or a damaged one
}

// add counts the records of a text in which each line holds one record.
func (t *tally) add(text string) {
	if t.copies == nil {
		t.copies = map[int]int{}
	}
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if n, ok := recordIn(line); ok {
			t.copies[n]++
		} else {
			t.invalid = append(t.invalid, line)
		}
	}
}

// recordIn returns the number of the record in a line. ok is false if the line has no record,
// several records, or a damaged one.
func recordIn(line string) (n int, ok bool) {
	for i := 0; i+8 <= len(line); i++ {
		if line[i] != 'r' || line[i+7] != ':' {
			continue
		}
		number, err := strconv.Atoi(line[i+1 : i+7])
		if err != nil {
			continue
		}
		end := strings.IndexByte(line[i+8:], ':') + i + 8
		if ok || end < i+8 || end+9 > len(line) {
			return 0, false
		}
		if fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(line[i:end]))) != line[end+1:end+9] {
			return 0, false
		}
		n, ok = number, true
		i = end + 8
	}
	return n, ok
}

// lost returns the numbers below n that were never received.
func (t *tally) lost(n int) (missing []int) {
	for i := range n {
		if t.copies[i] == 0 {
			missing = append(missing, i)
		}
	}
	return missing
}

// invented returns the number of stored records that no source contained, which are those with
// numbers from n on, plus the number of invalid lines.
func (t *tally) invented(n int) (count int) {
	for i := range t.copies {
		if i >= n {
			count++
		}
	}
	return count + len(t.invalid)
}

// repeated returns the number of copies beyond the first of each record.
func (t *tally) repeated() (count int) {
	for _, c := range t.copies {
		count += c - 1
	}
	return count
}

// TestTally feeds the counter with a lost, a repeated, a damaged and an invented record.
func TestTally(t *testing.T) {
	var got tally
	got.add(record(0, 5) + "\n" + `{"message":"` + record(1, 5) + `"}` + "\n" + record(1, 5) +
		"\n" + record(7, 5))
	got.add("r000002:aaaaa:00000000\n")
	got.add("a banner\n\n" + record(1, 5) + record(2, 5) + "\n")
	if lost := got.lost(3); len(lost) != 1 || lost[0] != 2 {
		t.Errorf("lost %v, want [2]", lost)
	}
	if got.repeated() != 1 {
		t.Errorf("repeated %d, want 1", got.repeated())
	}
	if got.invented(3) != 4 {
		t.Errorf("invented %d, want 4: an unknown record, a damaged one, a banner, two in a line",
			got.invented(3))
	}
}
