package endtoend

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// What the receivers of a soak hold, against what its writers have written. A line is "SCRAMBLED wWHO NUMBER PADDING": it differs
// from every other one from its first byte on, as lines that begin with a time do, and its number counts the lines of its writer.

// soakLine makes line number n of a writer.
func soakLine(dst []byte, who, n, padding int) []byte {
	dst = fmt.Appendf(dst, "%08x w%02d %09d ", scrambled(who, n), who, n)
	for i := range padding {
		dst = append(dst, byte('a'+(n+i)%26))
	}
	return append(dst, '\n')
}

func scrambled(who, n int) uint32 { return (uint32(who)<<26 ^ uint32(n)) * 2654435761 }

// parseSoakLine reads a line; the padding has to be what it was.
func parseSoakLine(line []byte) (who, n int, err error) {
	const head = 8 + 1 + 3 + 1 + 9 + 1
	if len(line) >= head && line[9] == 'w' {
		who, _ = strconv.Atoi(string(line[10:12]))
		n, _ = strconv.Atoi(string(line[13:22]))
		if want := soakLine(nil, who, n, len(line)-head); bytes.Equal(line, want[:len(want)-1]) && who < soakTailers+soakSpoolers {
			return who, n, nil
		}
	}
	return 0, 0, fmt.Errorf("a record that nobody wrote: %.100q", line)
}

// tally counts the lines of each writer that a receiver has.
type tally struct {
	mu       sync.Mutex // guards what follows
	have     [soakTailers + soakSpoolers][]uint8
	upTo     [soakTailers + soakSpoolers]int // all lines before are there
	records  int64
	problems []string
}

// add counts a line and returns how often it was there before.
func (t *tally) add(line []byte) (before int) {
	who, n, err := parseSoakLine(line)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.problem("%v", err)
		return 0
	}
	t.records++
	for len(t.have[who]) <= n {
		t.have[who] = append(t.have[who], make([]uint8, 1+len(t.have[who]))...)
	}
	before = int(t.have[who][n])
	t.have[who][n] = uint8(min(before+1, 255))
	for at := t.upTo[who]; at < len(t.have[who]) && t.have[who][at] > 0; at++ {
		t.upTo[who] = at + 1
	}
	return before
}

// problem notes what is wrong, the first ones in words. The lock is held.
func (t *tally) problem(format string, args ...any) {
	const most = 20
	if len(t.problems) < most {
		t.problems = append(t.problems, fmt.Sprintf(format, args...))
	}
}

// before is up to where all lines of a writer are there.
func (t *tally) before(who int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.upTo[who]
}

// all says whether every line of a writer before n is there.
func (t *tally) all(who, n int) bool { return t.before(who) >= n }

// count is how many lines have come.
func (t *tally) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records
}

// missing says which of the first n lines of a writer are not there.
func (t *tally) missing(who, n int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first []int
	lost := 0
	for i := range n {
		if i < len(t.have[who]) && t.have[who][i] > 0 {
			continue
		}
		if lost++; lost <= 5 {
			first = append(first, i)
		}
	}
	if lost == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d lines are missing, the first ones are %v", lost, n, first)
}

// soakTable follows a table.
type soakTable struct {
	tally
	db  *sql.DB
	row int64 // the last that was seen
}

// look reads the rows that are new. Each line may be there once.
func (s *soakTable) look() error {
	rows, err := s.db.Query("SELECT rowid, message, id FROM lines WHERE rowid > ? ORDER BY rowid", s.row)
	if err != nil {
		return nil // there is no table before the first record
	}
	defer rows.Close()
	for rows.Next() {
		var text, id string
		if err := rows.Scan(&s.row, &text, &id); err != nil {
			return err
		}
		if s.add([]byte(text)) > 0 {
			s.mu.Lock()
			s.problem("the table has a second %.40q, of %s", text, id)
			s.mu.Unlock()
		}
	}
	return rows.Err()
}

// soakServer is an HTTP receiver: it keeps what it is sent, and counts what it is sent again.
type soakServer struct {
	tally
	busy sync.WaitGroup

	again    sync.Mutex       // guards what follows
	first    map[uint64]int32 // the kill before which a line came last, by writer and number
	repeated []soakRepeats    // after each kill
	twice    int64            // bytes that came twice between two kills
}

// soakRepeats is what came again after a kill.
type soakRepeats struct {
	killed time.Time
	bytes  int64
	of     [soakTailers + soakSpoolers]struct{ lines, first, last int }
}

// String names the lines.
func (r *soakRepeats) String() string {
	text := fmt.Sprintf("killed at %s:", r.killed.UTC().Format("15:04:05.000"))
	for who, of := range r.of {
		if of.lines > 0 {
			text += fmt.Sprintf(" w%02d %d lines from %d to %d;", who, of.lines, of.first, of.last)
		}
	}
	return text
}

func newSoakServer() *soakServer {
	return &soakServer{first: make(map[uint64]int32), repeated: make([]soakRepeats, 1)}
}

// ServeHTTP implements http.Handler.
func (s *soakServer) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	s.busy.Add(1)
	defer s.busy.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off by a kill: nothing was received
	}
	for line := range bytes.Lines(body) {
		text := bytes.TrimSuffix(line, []byte("\n"))
		s.add(text)
		if who, n, err := parseSoakLine(text); err == nil {
			s.note(who, n, int64(len(line)))
		}
	}
}

// note counts what has come before.
func (s *soakServer) note(who, n int, size int64) {
	s.again.Lock()
	defer s.again.Unlock()
	now, id := int32(len(s.repeated)-1), uint64(who)<<32|uint64(n)
	last, seen := s.first[id]
	switch {
	case seen && last == now:
		s.twice += size
	case seen:
		r := &s.repeated[now]
		r.bytes += size
		of := &r.of[who]
		if of.lines++; of.lines == 1 || n < of.first {
			of.first = n
		}
		of.last = max(of.last, n)
	}
	s.first[id] = now
}

// killed begins another generation, once what a killed process sent has come.
func (s *soakServer) killed() {
	s.busy.Wait()
	s.again.Lock()
	defer s.again.Unlock()
	s.repeated = append(s.repeated, soakRepeats{killed: time.Now()})
}

// repeats are the bytes that came again after each kill, the most of them, and those that came twice between two.
func (s *soakServer) repeats() (most soakRepeats, all, twice int64) {
	s.again.Lock()
	defer s.again.Unlock()
	for _, r := range s.repeated {
		if all += r.bytes; r.bytes > most.bytes {
			most = r
		}
	}
	return most, all, s.twice
}
