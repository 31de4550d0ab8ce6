package endtoend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// bulkServer implements _bulk like Elasticsearch. It accepts, refuses, throttles and fails the
// items of a bulk at random. Sometimes it reports a failure for an item that it has stored.
type bulkServer struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex // guards the fields below
	random   *rand.Rand
	docs     map[string]string // by id
	refused  map[string]bool   // ids
	problems []string
	bulks    int
	partial  int // bulks of which some items were stored and some were not
}

func newBulkServer(t *testing.T, random *rand.Rand) *bulkServer {
	s := &bulkServer{t: t, random: random, docs: make(map[string]string),
		refused: make(map[string]bool)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.bulk))
	t.Cleanup(s.Close)
	return s
}

func (s *bulkServer) bulk(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || r.URL.Path != "/_bulk" {
		s.problems = append(s.problems, fmt.Sprint("a request to ", r.URL.Path, ": ", err))
		return
	}
	s.bulks++
	switch s.random.IntN(20) {
	case 0:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case 1:
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	lines := bytes.Split(bytes.TrimSuffix(body, []byte("\n")), []byte("\n"))
	var items []any
	taken, left := 0, 0
	for i := 0; i+1 < len(lines); i += 2 {
		status := s.item(lines[i], lines[i+1])
		item := map[string]any{"status": status}
		if status != 201 {
			item["error"] = map[string]string{"type": fmt.Sprintf("fault_%d", status),
				"reason": "by chance"}
			left++
		} else {
			taken++
		}
		items = append(items, map[string]any{"create": item})
	}
	if taken > 0 && left > 0 {
		s.partial++
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": left > 0, "items": items})
}

// item stores or refuses one document. A refused document stays refused.
func (s *bulkServer) item(action, doc []byte) int {
	var a struct {
		Create struct {
			ID    string `json:"_id"`
			Index string `json:"_index"`
		} `json:"create"`
	}
	var d struct{ Message string }
	if err := json.Unmarshal(action, &a); err != nil || a.Create.ID == "" ||
		a.Create.Index != "logs" {
		s.problems = append(s.problems, fmt.Sprintf("an action that reads %q", action))
	}
	if err := json.Unmarshal(doc, &d); err != nil {
		s.problems = append(s.problems, fmt.Sprintf("a document that reads %q", doc))
	}
	id := a.Create.ID
	if _, there := s.docs[id]; there {
		return 409
	}
	switch n := s.random.IntN(100); {
	case s.refused[id], n < 3:
		s.refused[id] = true
		return 400
	case n < 15:
		return 429
	case n < 20:
		return 503
	case n < 23:
		s.docs[id] = d.Message
		return 500 // reported as failed although it was stored
	}
	s.docs[id] = d.Message
	return 201
}

// refusedRecord returns the record of a dead letter, which the store must have refused.
func (s *bulkServer) refusedRecord(t *testing.T, line []byte) string {
	t.Helper()
	var letter struct {
		ID, Record, Reason, Detail, Worker string
		Attempts                           int
	}
	if err := json.Unmarshal(line, &letter); err != nil {
		t.Fatal(err)
	}
	known := s.refused[letter.ID] && strings.HasSuffix(letter.Reason, ": fault_400") &&
		letter.Detail == "fault_400: by chance"
	if !known || letter.Worker == "" || letter.Attempts < 1 {
		t.Errorf("a dead letter that the store has not refused, or without reason and worker: %s",
			line)
	}
	return letter.Record
}

// TestBulkInPart checks a store that accepts only some items of a bulk. In the end, each record
// must be once in the store, or in the dead letters with its own reason.
func TestBulkInPart(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	servers := []*bulkServer{newBulkServer(t, random), newBulkServer(t, random)}
	// Two nodes of one store.
	servers[1].docs, servers[1].refused = servers[0].docs, servers[0].refused
	lock := &servers[0].mu
	servers[1].Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		servers[0].bulk(w, r)
	})
	dir := t.TempDir()
	const records = 1500
	want := make(map[string]bool)
	for i := range records {
		want[fmt.Sprintf("record %d of the bulk", i)] = true
	}
	write(t, filepath.Join(dir, "spool", "a.log"),
		strings.Join(slices.Sorted(maps.Keys(want)), "\n")+"\n")
	config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
pipelines:
  bulk:
    source: { spool_dir: { path: ./spool } }
    sink:
      http:
        endpoints: [%q, %q]
        body: elasticsearch_bulk
        elasticsearch: { index: logs }
    batch: { records: 100 }
    retry: { base: 5ms, max: 50ms }
    flow: { redeliver_rate: 1000 }
`, servers[0].URL, servers[1].URL))
	res := once(t, config)
	lock.Lock()
	defer lock.Unlock()
	for _, p := range servers[0].problems {
		t.Error(p)
	}
	if servers[0].partial == 0 {
		t.Error("no bulk was settled in part: the test shows nothing")
	}
	got := make(map[string]int)
	for _, doc := range servers[0].docs {
		got[doc]++
	}
	for line := range bytes.Lines(read(t,
		filepath.Join(dir, "state", "dead", "bulk.main.ndjson"))) {
		got[servers[0].refusedRecord(t, line)]++
	}
	for line := range want {
		if n := got[line]; n != 1 {
			t.Errorf("%q is there %d times", line, n)
		}
	}
	p := res.Pipelines[0]
	docs, refused := int64(len(servers[0].docs)), int64(len(servers[0].refused))
	if len(got) != records || p.Delivered != docs || p.Dead != refused || docs+refused != records {
		t.Errorf("%d distinct records in store and letters; the summary says %+v", len(got), p)
	}
	t.Logf("%d bulks, %d in part, %d documents, %d refused", servers[0].bulks, servers[0].partial,
		docs, refused)
}
