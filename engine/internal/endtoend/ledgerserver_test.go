package endtoend

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// ledgerServer is an HTTP receiver that stores every record by its id, which consists of the
// partition and the offset after the record.
type ledgerServer struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	records map[string][]byte // by id, as received first
	last    map[string]int    // the generation that last received the id
	bytes   int64             // of distinct records
	// repeated has one element for each run of the program (a generation), which a kill ends. The
	// element is the number of bytes that were received from this run, and again from a later one,
	// because the run was killed before it saved their delivery.
	repeated []int64
	// twice is the number of bytes that were received twice from the same generation, because of a
	// timeout. The bound on the bytes that a kill repeats does not apply to them.
	twice    int64
	problems []string
}

func newLedgerServer(t *testing.T) *ledgerServer {
	s := &ledgerServer{t: t, records: make(map[string][]byte), last: make(map[string]int),
		repeated: []int64{0}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.receive))
	t.Cleanup(s.Close)
	return s
}

func (s *ledgerServer) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off by a kill: not counted as received
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("Idempotency-Key") == "" {
		s.problems = append(s.problems, "a request without Idempotency-Key")
	}
	if err := s.recordSpans(r.Header.Get("Penstock-Spans"), body); err != nil {
		s.problems = append(s.problems, err.Error())
	}
}

// recordSpans records the lines of a body, by the spans in its header.
func (s *ledgerServer) recordSpans(spans string, body []byte) error {
	for _, span := range strings.Split(spans, ",") {
		parts := strings.Split(span, ";")
		if len(parts) != 3 {
			return fmt.Errorf("a span that reads %q", span)
		}
		from, err1 := strconv.ParseInt(parts[1], 10, 64)
		to, err2 := strconv.ParseInt(parts[2], 10, 64)
		if err1 != nil || err2 != nil || to < from {
			return fmt.Errorf("a span that reads %q", span)
		}
		for at := from; at < to; {
			i := bytes.IndexByte(body, '\n')
			if i < 0 {
				return fmt.Errorf("the body ends before span %q", span)
			}
			at += int64(i + 1)
			s.record(parts[0]+"@"+strconv.FormatInt(at, 10), body[:i+1])
			body = body[i+1:]
		}
	}
	if len(body) > 0 {
		return fmt.Errorf("%d bytes in a body that no span covers", len(body))
	}
	return nil
}

func (s *ledgerServer) record(id string, line []byte) {
	now := len(s.repeated) - 1
	first, seen := s.records[id]
	switch {
	case !seen:
		s.records[id] = bytes.Clone(line)
		s.bytes += int64(len(line))
	case !bytes.Equal(first, line):
		s.problems = append(s.problems, fmt.Sprintf("record %s came as %.60q and as %.60q", id,
			first, line))
	case s.last[id] == now:
		s.twice += int64(len(line))
	default:
		s.repeated[s.last[id]] += int64(len(line)) // possibly several kills later
	}
	s.last[id] = now
}

// generation starts a new generation; it is called after each kill.
func (s *ledgerServer) generation() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repeated = append(s.repeated, 0)
}

func (s *ledgerServer) seenBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// check compares the received records with the files. Every line must have arrived. After the kill
// of each generation (run of the program), the repeated bytes must be within the bound.
func (s *ledgerServer) check(t *testing.T, files []spooled, bound int64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.problems {
		t.Error(p)
	}
	for generation, n := range s.repeated {
		if n > bound {
			t.Errorf("after kill %d, %d bytes were repeated; the bound is %d", generation, n, bound)
		}
	}
	got := map[string]int{}
	for _, line := range s.records {
		got[string(line)]++
	}
	want := map[string]int{}
	for _, f := range files {
		for _, line := range bytes.SplitAfter(f.text, []byte("\n")) {
			if len(line) > 0 {
				want[string(line)]++
			}
		}
	}
	lost, strange := 0, 0
	for line, n := range want {
		lost += max(0, n-got[line])
	}
	for line, n := range got {
		strange += max(0, n-want[line])
	}
	if lost > 0 || strange > 0 {
		t.Errorf("%d records lost, %d received that were never written", lost, strange)
	}
	t.Logf("%d records; repeated bytes by generation: %v, bound %d; %d more after timeouts",
		len(s.records), s.repeated, bound, s.twice)
}
