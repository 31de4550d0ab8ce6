package parked_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/parked"
)

// names returns the number of rows in a table of the store's file.
func names(t *testing.T, s *parked.Store, table string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+s.Path()+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestPrunePartitions checks that a partition is deleted with its last delivery, and not earlier,
// and that a later delivery of the same partition can be parked.
func TestPrunePartitions(t *testing.T) {
	s := open(t, path(t), 0)
	ofPartition := func(n int, partition string) parked.Row {
		r := row(n)
		r.Partition = partition
		return r
	}
	add(t, s, []parked.Row{ofPartition(1, "p"), ofPartition(2, "p"), ofPartition(3, "q")})
	for i, left := range []int{2, 1, 0} { // order-2 is of the same partition as order-1
		record(t, s, find(t, s, fmt.Sprint("order-", i+1)), parked.Accept, start)
		if n, err := s.Prune(t.Context(), start.Add(hour)); n != 1 || err != nil {
			t.Fatalf("pruned %d, %v", n, err)
		}
		if n := names(t, s, "partitions"); n != left {
			t.Errorf("%d partitions after %d deliveries, want %d", n, i+1, left)
		}
	}
	add(t, s, []parked.Row{ofPartition(4, "q"), ofPartition(5, "p")})
	if d := find(t, s, "order-5"); d.Partition != "p" {
		t.Errorf("partition %q, want p", d.Partition)
	}
	if total, err := s.Totals(t.Context()); err != nil || total.Bytes != s.LastTotals().Bytes ||
		total.Waiting != 2 || total.Done != 3 {
		t.Errorf("totals %+v, %v", total, err)
	}
}

// TestPruneHosts checks that hosts without deliveries are deleted if there are many hosts, and that
// hosts with waiting or ended deliveries stay.
func TestPruneHosts(t *testing.T) {
	s := open(t, path(t), 0)
	const hosts, few = 10_001, 20
	all := rows(0, hosts)
	for i := range all {
		all[i].Host = fmt.Sprint("h", i)
	}
	add(t, s, all[:few])
	if n, err := s.PruneHosts(t.Context()); n != 0 || err != nil || names(t, s, "hosts") != few {
		t.Errorf("few hosts: pruned %d, %v", n, err)
	}
	add(t, s, all[few:])
	if n, err := s.PruneHosts(t.Context()); n != 0 || err != nil {
		t.Errorf("hosts with waiting deliveries: pruned %d, %v", n, err)
	}
	for i := range few {
		record(t, s, find(t, s, fmt.Sprint("order-", i)), parked.Accept, start)
	}
	if n, err := s.PruneHosts(t.Context()); n != 0 || err != nil {
		t.Errorf("hosts with ended deliveries: pruned %d, %v", n, err)
	}
	if n, err := s.Prune(t.Context(), start.Add(hour)); n != few || err != nil {
		t.Fatalf("pruned %d, %v", n, err)
	}
	if n, err := s.PruneHosts(t.Context()); n != few || err != nil {
		t.Errorf("hosts without deliveries: pruned %d, %v, want %d", n, err, few)
	}
	again := row(hosts)
	again.Host = "h0"
	add(t, s, []parked.Row{again})
	if d := find(t, s, again.Key); d.Host != "h0" {
		t.Errorf("host %q, want h0", d.Host)
	}
}
