package parked_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

func open(t *testing.T, path string, maxBytes int64) *parked.Store {
	t.Helper()
	s, err := parked.Open(t.Context(), parked.Options{Path: path, MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func path(t *testing.T) string { return filepath.Join(t.TempDir(), parked.FileName) }

func row(n int) parked.Row {
	return parked.Row{
		Partition: "f-1",
		Position:  stream.Position{Num: int64(n)},
		File:      "orders.ndjson",
		Weight:    1,
		Key:       fmt.Sprintf("order-%d", n),
		Host:      fmt.Sprintf("m%d.example:443", n%3),
		URL:       "https://m.example/paid",
		Method:    "POST",
		Body:      fmt.Appendf(nil, `{"order":%d}`, n),
		Start:     start,
	}
}

func rows(from, to int) (out []parked.Row) {
	for n := from; n < to; n++ {
		out = append(out, row(n))
	}
	return out
}

func add(t *testing.T, s *parked.Store, rows []parked.Row) parked.Added {
	t.Helper()
	added, err := s.Add(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

func find(t *testing.T, s *parked.Store, key string) *parked.Delivery {
	t.Helper()
	d, err := s.Find(t.Context(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// record applies an attempt's event to a delivery.
func record(t *testing.T, s *parked.Store, d *parked.Delivery, e parked.Event, now time.Time) {
	t.Helper()
	p := step(t, d.Progress, payment, parked.Begin, now, 0)
	p = step(t, p, payment, e, now, 0)
	entries := []parked.Entry{{At: now, Event: e.String(), Status: 500}}
	if _, err := s.Record(
		t.Context(), []parked.Change{{Delivery: d, To: p, Entries: entries}},
	); err != nil {
		t.Fatal(err)
	}
}

func TestStoreSurvivesReopening(t *testing.T) {
	at := path(t)
	s := open(t, at, 0)
	if added := add(t, s, rows(0, 9)); len(added.Hosts) != 3 || added.Repeated != 0 {
		t.Errorf("added %+v", added)
	}
	if added := add(t, s, rows(5, 12)); added.Repeated != 4 {
		t.Errorf("%d rows were parked already, want 4", added.Repeated)
	}
	record(t, s, find(t, s, "order-1"), parked.Refuse, start)
	record(t, s, find(t, s, "order-2"), parked.Accept, start)
	record(t, s, find(t, s, "order-3"), parked.Stop, start)
	if err := s.Cancel(t.Context(), find(t, s, "order-4").ID, start); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, at, 0)
	total, err := s.Totals(t.Context())
	if total.Bytes = 0; err != nil ||
		total != (parked.Totals{Waiting: 9, Done: 1, Dead: 1, Cancelled: 1, Repeated: 4}) {
		t.Errorf("totals %+v, %v", total, err)
	}
	d := find(t, s, "order-1")
	if d.State != parked.Waiting || d.Attempt != 1 || !d.Due.Equal(start.Add(15*second)) ||
		string(d.RecordText()) != `{"order":1}` ||
		d.RecordID() != "f-1@1" ||
		d.Host != "m1.example:443" {
		t.Errorf("reopened: %+v", d)
	}
	history, err := s.History(t.Context(), d.ID)
	if err != nil || len(history) != 1 || history[0].Event != "refuse" ||
		history[0].Status != 500 ||
		!history[0].At.Equal(start) {
		t.Errorf("history %+v, %v", history, err)
	}
	var over *parked.TransitionError
	if err := s.Retry(t.Context(), find(t, s, "order-2").ID, start); !errors.As(err, &over) {
		t.Errorf("retry of a delivery that is done: %v", err)
	}
	if _, err := s.Find(t.Context(), "order-99", nil); !errors.As(err, new(*parked.NotFoundError)) {
		t.Errorf("a key that is missing: %v", err)
	}
}

// TestDueByHost checks that Hosts returns the hosts with waiting deliveries page by page, and that
// Due returns the due deliveries of one host and none before its time. Next must return the next
// due time, and an operator's Retry must make a delivery due at once.
func TestDueByHost(t *testing.T) {
	s := open(t, path(t), 0)
	add(t, s, rows(0, 9))
	var hosts []parked.Host
	var pages []int64
	for after := int64(0); ; {
		page, err := s.Hosts(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		hosts, pages = append(hosts, page.Hosts...), append(pages, page.After)
		if after = page.After; after == 0 {
			break
		}
	}
	if len(hosts) != 3 || len(pages) != 2 || !hosts[0].Due.Equal(start) {
		t.Fatalf("hosts %+v in pages that end at %v", hosts, pages)
	}
	host := hosts[0].ID
	if early, err := s.Due(t.Context(), host, start.Add(-time.Millisecond), 10); err != nil ||
		len(early) > 0 {
		t.Errorf("%d deliveries are due early, %v", len(early), err)
	}
	due, err := s.Due(t.Context(), host, start, 2)
	if err != nil || len(due) != 2 {
		t.Fatalf("due %d, %v", len(due), err)
	}
	record(t, s, due[0], parked.Refuse, start)
	next, ok, err := s.Next(t.Context(), host, start)
	if err != nil || !ok || !next.Equal(start.Add(15*second)) {
		t.Errorf("next due time %v, %v, %v", next, ok, err)
	}
	if err := s.Retry(t.Context(), due[0].ID, start.Add(second)); err != nil {
		t.Fatal(err)
	}
	if d := find(t, s, due[0].Key); !d.Forced || !d.Due.Equal(start.Add(second)) {
		t.Errorf("after retry: %+v", d.Progress)
	}
}

func TestListPages(t *testing.T) {
	s := open(t, path(t), 0)
	add(t, s, rows(0, 30))
	record(t, s, find(t, s, "order-0"), parked.Accept, start)
	var after int64
	seen := 0
	for {
		page, err := s.List(
			t.Context(),
			parked.Filter{Host: "m0.example", State: "waiting", After: after, Limit: 4},
		)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			if d.Host != "m0.example:443" || d.State != parked.Waiting || d.ID <= after {
				t.Errorf("listed %+v after %d", d, after)
			}
			after = d.ID
			seen++
		}
	}
	if seen != 9 {
		t.Errorf("listed %d deliveries, want 9", seen)
	}
	if _, err := s.List(t.Context(), parked.Filter{State: "lost"}); err == nil {
		t.Error("an unknown state was accepted")
	}
}

func TestStoreIsBounded(t *testing.T) {
	r := row(10)
	s := open(t, path(t), 10*r.Bytes())
	add(t, s, rows(10, 20))
	_, err := s.Add(t.Context(), rows(20, 21))
	if !errors.Is(err, parked.ErrFull) {
		t.Fatalf("adding beyond the bound: %v", err)
	}
	record(t, s, find(t, s, "order-12"), parked.Accept, start)
	if n, err := s.Prune(t.Context(), start.Add(hour)); n != 1 || err != nil {
		t.Fatalf("pruned %d, %v", n, err)
	}
	add(t, s, rows(20, 21))
	if total := s.LastTotals(); total.Waiting != 10 || total.Done != 1 {
		t.Errorf("totals %+v", total)
	}
}

// TestCancelWhileInFlight checks that a delivery that an operator cancels during an attempt stays
// cancelled after the end of the attempt.
func TestCancelWhileInFlight(t *testing.T) {
	at := path(t)
	s, other := open(t, at, 0), open(t, at, 0)
	add(t, s, rows(1, 2))
	before, err := s.DataVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := find(t, s, "order-1")
	if err := other.Cancel(t.Context(), d.ID, start); err != nil {
		t.Fatal(err)
	}
	if after, err := s.DataVersion(t.Context()); err != nil || after == before {
		t.Errorf("the change of another process is not seen: %v", err)
	}
	record(t, s, d, parked.Refuse, start)
	if d = find(t, s, "order-1"); d.State != parked.Cancelled {
		t.Errorf("state %v after a cancellation", d.State)
	}
	if history, err := s.History(t.Context(), d.ID); err != nil || len(history) != 2 {
		t.Errorf("history %+v, %v: want the cancellation and the attempt", history, err)
	}
	if total, err := s.Totals(t.Context()); err != nil || total.Waiting != 0 ||
		total.Cancelled != 1 {
		t.Errorf("totals %+v, %v", total, err)
	}
}

// TestTotalsAgree checks after concurrent changes that the stored counts (Totals) agree with the
// rows.
func TestTotalsAgree(t *testing.T) {
	s := open(t, path(t), 0)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range 25 {
				n := w*1000 + i*5
				if _, err := s.Add(t.Context(), rows(n, n+5)); err != nil {
					t.Error(err)
					return
				}
				d, err := s.Find(t.Context(), fmt.Sprintf("order-%d", n), nil)
				if err != nil {
					t.Error(err)
					return
				}
				p, _ := d.Progress.Next(payment, parked.Begin, start, 0)
				p, _ = p.Next(
					payment,
					[]parked.Event{parked.Accept, parked.Stop, parked.Refuse, parked.Cancel}[rnd.IntN(4)],
					start,
					0,
				)
				if _, err := s.Record(
					t.Context(), []parked.Change{{Delivery: d, To: p}},
				); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var want parked.Totals
	for after := int64(0); ; {
		page, err := s.List(t.Context(), parked.Filter{After: after, Limit: 500})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			after = d.ID
			want.Bytes += d.Bytes()
			switch d.State {
			case parked.Waiting:
				want.Waiting++
			case parked.Done:
				want.Done++
			case parked.Dead:
				want.Dead++
			case parked.Cancelled:
				want.Cancelled++
			}
		}
	}
	if got := s.LastTotals(); got != want || got.Waiting+got.Done+got.Dead+got.Cancelled != 500 {
		t.Errorf("totals %+v, rows %+v", got, want)
	}
}

// TestRefresh calls Refresh, which rereads the counts of deliveries, during commits. The counts
// must contain each commit once.
func TestRefresh(t *testing.T) {
	s := open(t, path(t), 0)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for n := range 4 {
		wg.Go(func() {
			for i := range 50 {
				one := rows(1000*n+i, 1000*n+i+1)
				if _, err := s.Add(t.Context(), one); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	for isDone := false; !isDone; {
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			isDone = true
		default:
		}
	}
	want, err := s.Totals(t.Context())
	if got := s.LastTotals(); err != nil || got != want || got.Waiting != 200 {
		t.Errorf("sums %+v, want %+v, %v", got, want, err)
	}
}

func TestNewerVersionIsRefused(t *testing.T) {
	if _, err := parked.OpenExisting(t.Context(), parked.Options{Path: path(t)}); !errors.Is(
		err, os.ErrNotExist,
	) {
		t.Errorf("opening a file that is missing: %v", err)
	}
	at := path(t)
	if err := os.WriteFile(
		at, []byte("this is no database, and long enough to be told from one"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	if _, err := parked.Open(t.Context(), parked.Options{Path: at}); err == nil {
		t.Error("opened a file that is no database")
	}
}

const childStore = "PENSTOCK_TEST_PARKED_CHILD"

// TestKilled kills a process that parks and changes rows, and checks that everything it has reported
// is in the file.
func TestKilled(t *testing.T) {
	if at := os.Getenv(childStore); at != "" {
		runChild(t, at)
		return
	}
	if runtime.GOOS == "windows" {
		t.Skip("kill -9 is tested on systems that have it")
	}
	at := path(t)
	next := 0
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(
			os.Environ(), childStore+"="+at, fmt.Sprintf("%s_FROM=%d", childStore, next),
		)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		parkedRows, done := 0, 0
		lines := bufio.NewScanner(out)
		for lines.Scan() && parkedRows < 20+7*round {
			if strings.HasPrefix(lines.Text(), "parked ") {
				parkedRows++
			} else if strings.HasPrefix(lines.Text(), "done ") {
				done++
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // reported before the kill
			if strings.HasPrefix(lines.Text(), "parked ") {
				parkedRows++
			} else if strings.HasPrefix(lines.Text(), "done ") {
				done++
			}
		}
		_ = cmd.Wait() // it was killed
		s := open(t, at, 0)
		for n := next; n < next+10*parkedRows; n++ {
			d := find(t, s, fmt.Sprintf("order-%d", n))
			if n%10 == 0 && n < next+10*done && d.State != parked.Done {
				t.Errorf("round %d: order-%d is %v, and was reported as done", round, n, d.State)
			}
		}
		total, err := s.Totals(t.Context())
		if err != nil || total.Waiting+total.Done < int64(next+10*parkedRows) {
			t.Errorf(
				"round %d: totals %+v, %v: want at least %d rows", round, total, err,
				next+10*parkedRows,
			)
		}
		next = int(total.Waiting + total.Done)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func runChild(t *testing.T, at string) {
	s, err := parked.Open(context.Background(), parked.Options{Path: at})
	if err != nil {
		t.Fatal(err)
	}
	var from int
	if _, err := fmt.Sscan(os.Getenv(childStore+"_FROM"), &from); err != nil {
		t.Fatal(err)
	}
	for n := from; n < from+10_000; n += 10 {
		add(t, s, rows(n, n+10))
		fmt.Println("parked", n)
		record(t, s, find(t, s, fmt.Sprintf("order-%d", n)), parked.Accept, start)
		fmt.Println("done", n)
	}
}
