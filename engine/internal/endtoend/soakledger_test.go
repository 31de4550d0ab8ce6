package endtoend

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// This file compares the lines that the receivers of a soak test got with the lines that its
// writers wrote. A line is "SCRAMBLED wWHO NUMBER PADDING". NUMBER counts the lines of the writer
// WHO. SCRAMBLED makes the line differ from every other line from its first byte on, like a time at
// the beginning of a line.

// soakLine appends line number n of a writer.
func soakLine(dst []byte, who, n, padding int) []byte {
	dst = fmt.Appendf(dst, "%08x w%02d %09d ", scrambled(who, n), who, n)
	for i := range padding {
		dst = append(dst, byte('a'+(n+i)%26))
	}
	return append(dst, '\n')
}

func scrambled(who, n int) uint32 { return (uint32(who)<<26 ^ uint32(n)) * 2654435761 }

// parseSoakLine parses a line and checks its padding.
func parseSoakLine(line []byte) (who, n int, err error) {
	const head = 8 + 1 + 3 + 1 + 9 + 1
	if len(line) >= head && line[9] == 'w' {
		who, _ = strconv.Atoi(string(line[10:12]))
		n, _ = strconv.Atoi(string(line[13:22]))
		if want := soakLine(nil, who, n, len(line)-head); bytes.Equal(line, want[:len(want)-1]) &&
			who < soakTailers+soakSpoolers {
			return who, n, nil
		}
	}
	return 0, 0, fmt.Errorf("a record that nobody wrote: %.100q", line)
}

// tally counts the received lines of each writer.
type tally struct {
	mu       sync.Mutex // guards the fields below
	have     [soakTailers + soakSpoolers][]uint8
	upTo     [soakTailers + soakSpoolers]int // all lines before it were received
	top      [soakTailers + soakSpoolers]int // the end of the received lines
	records  int64
	problems []string
}

// add counts a line and returns how often it was received before.
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
	t.top[who] = max(t.top[who], n+1)
	for at := t.upTo[who]; at < len(t.have[who]) && t.have[who][at] > 0; at++ {
		t.upTo[who] = at + 1
	}
	return before
}

// problem records a problem, and keeps the text of the first ones. The caller holds the lock.
func (t *tally) problem(format string, args ...any) {
	const most = 20
	if len(t.problems) < most {
		t.problems = append(t.problems, fmt.Sprintf(format, args...))
	}
}

// before returns the number up to which all lines of a writer were received.
func (t *tally) before(who int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.upTo[who]
}

// all reports whether all lines of a writer before n were received.
func (t *tally) all(who, n int) bool { return t.before(who) >= n }

// newest returns the number after the last received line of a writer.
func (t *tally) newest(who int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.top[who]
}

// count returns the number of received lines.
func (t *tally) count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records
}

// missing returns an error if a receiver lacks some of the first n lines of a writer. The error has
// the number of missing lines, and the first five of them.
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
	row int64 // the last row seen
}

// look reads new rows. Each line may occur once.
func (s *soakTable) look() error {
	rows, err := s.db.Query("SELECT rowid, message, id FROM lines WHERE rowid > ? ORDER BY rowid",
		s.row)
	if err != nil {
		return nil // the table does not exist before the first record
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

// soakServer is an HTTP receiver that counts received and repeated lines. The last element of a
// request's path is the number of the process that has sent it. The number is needed, because a
// request of a killed process may be read after the start of the next process.
type soakServer struct {
	tally
	down atomic.Bool // answer every request with 503

	again sync.Mutex // guards the fields below
	// the last process that sent a line, by writer and number
	last  map[uint64]int32
	kills map[int32]*soakRepeats // by the process that has ended
	twice int64                  // bytes sent twice by one process
	// by process: the number after the last line that it sent
	tops map[int32]*[soakTailers + soakSpoolers]int
}

// soakRepeats are the lines that one process delivered and a later process delivered again. They
// count for the earlier process, because it has not saved them: when it ended, they were in flight,
// or settled but not saved. The later process need not be the next one. If the next process is
// killed early, the process after it may repeat the lines, together with those of the killed
// process. If a line was sent by three processes, it counts once for the first and once for the
// second.
type soakRepeats struct {
	process int32
	bytes   int64
	of      [soakTailers + soakSpoolers]struct{ lines, first, last int }
}

// String returns the lines as text.
func (r *soakRepeats) String() string {
	text := fmt.Sprintf("of process %d:", r.process)
	for who, of := range r.of {
		if of.lines > 0 {
			text += fmt.Sprintf(" w%02d %d lines from %d to %d;", who, of.lines, of.first, of.last)
		}
	}
	return text
}

func newSoakServer() *soakServer {
	return &soakServer{
		last: make(map[uint64]int32), kills: make(map[int32]*soakRepeats),
		tops: make(map[int32]*[soakTailers + soakSpoolers]int),
	}
}

// soakAnswer is the maximum delay of a response after the whole request was received. The mean of
// the random delay is half as long. It is so long that a kill mostly repeats lines that a receiver
// had received and not yet acknowledged.
const soakAnswer = 400 * time.Millisecond

// ServeHTTP implements http.Handler.
func (s *soakServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	process, err := strconv.Atoi(path.Base(r.URL.Path))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off by a kill: not counted as received
	}
	if s.down.Load() {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	for line := range bytes.Lines(body) {
		text := bytes.TrimSuffix(line, []byte("\n"))
		s.add(text)
		if who, n, err := parseSoakLine(text); err == nil {
			s.recordLine(int32(process), who, n, int64(len(line)))
		}
	}
	soakWait(r.Context(), time.Duration(crc32.ChecksumIEEE(body))%soakAnswer)
}

// recordLine counts repeated lines.
func (s *soakServer) recordLine(process int32, who, n int, size int64) {
	s.again.Lock()
	defer s.again.Unlock()
	if s.tops[process] == nil {
		s.tops[process] = new([soakTailers + soakSpoolers]int)
	}
	s.tops[process][who] = max(s.tops[process][who], n+1)
	id := uint64(who)<<32 | uint64(n)
	last, seen := s.last[id]
	s.last[id] = max(last, process)
	switch {
	case !seen:
		return
	case last == process:
		s.twice += size
		return
	}
	ended := min(last, process)
	r := s.kills[ended]
	if r == nil {
		r = &soakRepeats{process: ended}
		s.kills[ended] = r
	}
	r.bytes += size
	of := &r.of[who]
	if of.lines++; of.lines == 1 || n < of.first {
		of.first = n
	}
	of.last = max(of.last, n)
}

// newest returns the number after the last line of a writer that a process has sent, or 0.
func (s *soakServer) newest(process int32, who int) int {
	s.again.Lock()
	defer s.again.Unlock()
	if s.tops[process] == nil {
		return 0
	}
	return s.tops[process][who]
}

// repeats returns the repeats of each process, with the largest first. twice is the number of bytes
// that one process has sent twice.
func (s *soakServer) repeats() (list []*soakRepeats, twice int64) {
	s.again.Lock()
	defer s.again.Unlock()
	list = slices.Collect(maps.Values(s.kills))
	slices.SortFunc(list, func(a, b *soakRepeats) int { return cmp.Compare(b.bytes, a.bytes) })
	return list, s.twice
}

// TestSoakRepeats checks that a repeat counts for the process that left the line unsaved, and not
// for the last process before the repeat.
func TestSoakRepeats(t *testing.T) {
	s := newSoakServer()
	send := func(process, first, lines int) {
		var body []byte
		for n := range lines {
			body = soakLine(body, 3, first+n, 10)
		}
		r := httptest.NewRequest(http.MethodPost, fmt.Sprintf("/a/%d", process),
			bytes.NewReader(body))
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // cancel the request before its answer
		s.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	}
	size := int64(len(soakLine(nil, 3, 0, 10)))
	send(1, 0, 10)
	send(2, 10, 10) // killed before it repeats the lines of the first process
	send(3, 0, 20)
	send(1, 20, 5)
	send(3, 20, 5)
	send(2, 25, 5)
	send(4, 25, 5)
	send(3, 25, 5) // which the server reads late
	send(4, 30, 1)
	send(4, 30, 1) // not explained by a kill
	list, twice := s.repeats()
	got := map[int32]int64{}
	for _, r := range list {
		got[r.process] = r.bytes / size
	}
	if want := map[int32]int64{1: 15, 2: 15, 3: 5}; !maps.Equal(got, want) || list[2].process != 3 {
		t.Errorf("the ends of the processes have repeated %v lines, want %v", got, want)
	}
	if twice != size {
		t.Errorf("%d bytes came twice from one process, want %d", twice, size)
	}
}

// TestSoakSamples checks that a line counts as saved only some time after a process has delivered
// it, and only if this process is still running. If a line counted as saved too early, a writer
// could rename its file out of the globs before every route has recorded the file.
func TestSoakSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &soak{t: t, cmd: &exec.Cmd{}, process: 1}
		for i := range s.servers {
			s.servers[i] = newSoakServer()
		}
		for i := range s.tables {
			s.tables[i] = &soakTable{}
		}
		sent := func(process int32, n int) {
			for _, server := range s.receivers(2) {
				server.recordLine(process, 2, n, 10)
				server.add(soakLine(nil, 2, n, 0)[:23])
			}
		}
		pass := func(d time.Duration) int {
			for range 10 {
				time.Sleep(d / 10)
				s.sample()
			}
			return int(s.steady[2].Load())
		}
		for n := range 20 {
			s.tables[0].add(soakLine(nil, 2, n, 0)[:23])
		}
		sent(1, 0)
		if got := pass(savedAfter / 2); got != 0 {
			t.Errorf("just delivered: %d lines count as saved, want 0", got)
		}
		if got := pass(2 * savedAfter); got != 1 {
			t.Errorf("a while after: %d lines count as saved, want 1", got)
		}
		sent(1, 1)
		s.process, s.samples = 2, nil // killed
		if got := pass(2 * savedAfter); got != 1 {
			t.Errorf("delivered by one that was killed: %d lines count as saved, want 1", got)
		}
		sent(2, 1)
		if got := pass(2 * savedAfter); got != 2 {
			t.Errorf("delivered once more: %d lines count as saved, want 2", got)
		}
	})
}
