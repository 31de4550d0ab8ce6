package parked_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// TestVersion1 checks that several processes, such as the command line and the engine, can open a
// file of version 1 concurrently.
func TestVersion1(t *testing.T) {
	at := path(t)
	packed, err := os.ReadFile("testdata/version1.sqlite.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	file, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, file, 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := parked.OpenExisting(t.Context(), parked.Options{Path: at})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := open(t, at, 0)
	total, err := s.Totals(t.Context())
	if total.Bytes = 0; err != nil ||
		total != (parked.Totals{Waiting: 3, Done: 1, Dead: 1, Cancelled: 1}) {
		t.Errorf("totals %+v, %v", total, err)
	}
	d := find(t, s, "order-1")
	if d.State != parked.Waiting || d.Attempt != 1 || !d.Due.Equal(start.Add(15*second)) ||
		d.Polled() ||
		d.Waits != nil {
		t.Errorf("a waiting delivery of version 1: %+v", d)
	}
	if history, err := s.History(t.Context(), d.ID); err != nil || len(history) != 1 {
		t.Errorf("history %+v, %v", history, err)
	}
	record(t, s, d, parked.Refuse, start.Add(15*second))
	if added := add(t, s, rows(0, 7)); added.Repeated != 6 {
		t.Errorf("%d rows were recognized, want 6", added.Repeated)
	}
	if found := version(t, at); found != 2 {
		t.Errorf("the file has version %d", found)
	}
}

// TestNewerVersion checks that a file of a newer program is refused and left unchanged.
func TestNewerVersion(t *testing.T) {
	at := path(t)
	if err := open(t, at, 0).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, at, "PRAGMA user_version = 99")
	if _, err := parked.OpenExisting(t.Context(), parked.Options{Path: at}); err == nil {
		t.Error("a file of version 99 was opened")
	}
	if found := version(t, at); found != 99 {
		t.Errorf("the file has version %d", found)
	}
}

func version(t *testing.T, at string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", at)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func execute(t *testing.T, at, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", at)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
