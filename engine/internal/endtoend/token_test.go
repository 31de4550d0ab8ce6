package endtoend

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestWrongTokenHeals checks that a refused token stops only the route that uses it. This route
// then settles and dead-letters nothing. Once the token's file contains the right token, everything
// must arrive without a restart.
func TestWrongTokenHeals(t *testing.T) {
	t.Parallel()
	const records = 3000
	dir := t.TempDir()
	var in strings.Builder
	for i := range records {
		fmt.Fprintf(&in, "record %d\n", i)
	}
	write(t, filepath.Join(dir, "spool", "a.log"), in.String())
	token := write(t, filepath.Join(dir, "token"), "wrong\n")
	letters := filepath.Join(dir, "state", "dead", "heals.remote.ndjson")
	var mu sync.Mutex // guards the variables below
	var taken bytes.Buffer
	refusals, before := 0, -1 // before: records accepted when the token was corrected
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && r.Header.Get("Authorization") == "Bearer right" {
			taken.Write(body)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		refusals++
		other, _ := os.ReadFile(filepath.Join(dir, "local.log"))
		if refusals < 3 || len(other) < in.Len() || before >= 0 {
			return
		}
		before = taken.Len() // the other route has ended, and this one has made its attempts
		if text, err := os.ReadFile(letters); err == nil && len(text) > 0 {
			t.Errorf("a wrong token made dead letters: %.200s", text)
		}
		if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	res := once(t, write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  heals:
    source: { spool_dir: { path: ./spool, quiet_period: 50ms } }
    routes:
      local: { sink: { file: { path: ./local.log, format: raw } } }
      remote:
        sink: { http: { endpoints: [%q], body: raw, bearer_file: ./token } }
        batch: { records: 100 }
        retry: { base: 20ms, max: 200ms }
`, server.URL)))
	mu.Lock()
	defer mu.Unlock()
	if before != 0 {
		t.Errorf("%d bytes were taken before the token was mended, want none (-1: it never was)",
			before)
	}
	if err := sameTexts(strings.Split(taken.String(), "\n"),
		strings.Split(in.String(), "\n")); err != nil {
		t.Errorf("the receiver does not have each record once: %v", err)
	}
	for _, p := range res.Pipelines {
		if p.Delivered != records || p.Dead != 0 {
			t.Errorf("%+v, want %d delivered", p, records)
		}
	}
	t.Logf("%d requests were refused before the token was mended and read again", refusals)
}
