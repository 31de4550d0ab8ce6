package httpserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/httpserver"
	"github.com/penstock-io/penstock/stream"
)

// TestWithdrawUnsent checks requests whose deadline passes while all workers are busy: only those
// that a worker has got have an unknown outcome. The others are not delivered until they are
// repeated.
func TestWithdrawUnsent(t *testing.T) {
	t.Parallel()
	const requests = 40
	for name, c := range map[string]struct {
		more []string
		// unsent requests may have an unknown outcome: their batch was being processed at the
		// deadline, or had other requests with a later one
		unsure bool
		noKeys bool
	}{
		"read ahead":   {more: []string{"batch: {records: 1}"}},
		"without keys": {more: []string{"batch: {records: 1}"}, noKeys: true},
		"processed": {unsure: true,
			more: []string{"batch: {records: 1}", `processors: [{set: {seen: '"yes"'}}]`}},
		"several requests in a batch": {unsure: true,
			more: []string{"batch: {records: 3}"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := run(t, "format: ndjson, deadline: 500ms",
				append(c.more, "flow: {timeout: 60s, abandon: 120s, window: fixed, size: 1}")...)
			var mu sync.Mutex
			sent := make(map[string]bool)
			open := make(chan struct{})
			s.setDeliver(func(ctx context.Context, b *stream.Batch) error {
				mu.Lock()
				for _, i := range b.AppendKept(nil) {
					sent[strings.TrimSpace(string(b.Text(i)))] = true
				}
				mu.Unlock()
				select {
				case <-open:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			states := make([]string, requests)
			text := func(k int) string { return fmt.Sprintf(`{"n":%d}`, k) }
			key := func(k int) string {
				if c.noKeys {
					return "No-Key: x"
				}
				return fmt.Sprintf("Idempotency-Key: %d", k)
			}
			var group sync.WaitGroup
			for k := range requests {
				group.Go(func() {
					a, err := s.try("/", strings.NewReader(text(k)), key(k))
					if err != nil || a.status != 503 {
						t.Errorf("request %d: %v %v", k, a, err)
						return
					}
					states[k] = a.header.Get(httpserver.StateHeader)
				})
			}
			group.Wait()
			mu.Lock()
			untaken, unsure := 0, 0
			for k, state := range states {
				switch {
				case state == "untaken" && sent[text(k)]:
					t.Errorf("request %d was sent to a worker, and its state is untaken", k)
				case state == "untaken":
					untaken++
				case state == "unknown" && !sent[text(k)]:
					unsure++
				}
			}
			got := len(sent)
			mu.Unlock()
			if untaken == 0 || got == 0 {
				t.Errorf("%d requests untaken, %d sent; want some of both", untaken, got)
			}
			if unsure > 0 && !c.unsure {
				t.Errorf("%d requests have an unknown outcome, and no worker has got them", unsure)
			}
			t.Logf("%d sent, %d untaken, %d unknown although unsent", got, untaken, unsure)
			close(open)
			for k := range requests {
				if c.noKeys && states[k] == "unknown" {
					continue // it is delivered without a repetition
				}
				if a := s.persist("/", text(k), key(k)); a.status != 200 {
					t.Errorf("repeated request %d: %d %s", k, a.status, a.body)
				}
			}
			if records := slices.Compact(s.records()); len(records) != requests {
				t.Errorf("%d records arrived, want %d", len(records), requests)
			}
			if r := s.e.Status().Routes[0]; r.ReadRecords != requests || r.Delivered != requests {
				t.Errorf("%d records read, %d delivered; want %d", r.ReadRecords, r.Delivered, requests)
			}
		})
	}
}
