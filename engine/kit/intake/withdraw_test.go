package intake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// withdrawal is a route with a sender that has sent no batch yet.
type withdrawal struct {
	*route
	unsent []*stream.Batch
	late   func() // called before Withdrawn
}

func openWithdrawal(t *testing.T, in *intake.Intake) *withdrawal {
	t.Helper()
	w := &withdrawal{route: &route{t: t, name: streamtest.Route,
		marks:  make(map[string]stream.Mark),
		limits: stream.BatchLimits{Bytes: 64, Records: 4}}}
	var err error
	w.reader, err = in.Open(t.Context(), stream.OpenOptions{
		Route: w.name, Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
		Withdraw: w.withdraw,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *withdrawal) withdraw() {
	reader := w.reader.(stream.WithdrawingReader)
	kept := w.unsent[:0]
	for _, b := range w.unsent {
		if !reader.Unwanted(b) {
			kept = append(kept, b)
			continue
		}
		if w.late != nil {
			w.late()
		}
		reader.Withdrawn(b)
	}
	w.unsent = kept
}

// next reads a batch and checks its records.
func (w *withdrawal) next(want string) *stream.Batch {
	w.t.Helper()
	texts, b := w.read()
	if got := fmt.Sprint(texts); got != want {
		w.t.Fatalf("read %s, want %s", got, want)
	}
	w.unsent = append(w.unsent, b)
	return b
}

// take calls Withdraw with a context that is done, so that it does not wait for the route.
func take(t *testing.T, s *intake.Submission) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Withdraw(ctx)
}

// wantOutcomes checks the outcomes of submissions: nil, an error, or context.Canceled if there is
// none yet.
func wantOutcomes(t *testing.T, subs []*intake.Submission, want ...error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for k, s := range subs {
		if err := s.Wait(ctx); !errors.Is(err, want[k]) {
			t.Errorf("submission %d: %v, want %v", k, err, want[k])
		}
	}
}

// TestWithdrawRead checks which submissions are withdrawn from the batches of a route.
func TestWithdrawRead(t *testing.T) {
	for _, c := range []struct {
		name     string
		records  []intake.Records
		ids      []string // ids of the requests; "" for none
		batches  []string
		withdraw []int
		outcomes []error
	}{
		{
			name:    "whole batch",
			records: []intake.Records{lines("1"), lines("2")}, ids: []string{"", ""},
			batches: []string{"[1 2]"}, withdraw: []int{0, 1},
			outcomes: []error{intake.ErrWithdrawn, intake.ErrWithdrawn},
		},
		{
			name:    "one of a batch",
			records: []intake.Records{lines("1"), lines("2")}, ids: []string{"", ""},
			batches: []string{"[1 2]"}, withdraw: []int{0},
			outcomes: []error{context.Canceled, context.Canceled},
		},
		{
			name:    "requests with and without ids",
			records: []intake.Records{lines("1"), lines("2"), lines("3")},
			ids:     []string{"", "a", ""},
			batches: []string{"[1 2 3]"}, withdraw: []int{2, 1, 0},
			outcomes: []error{intake.ErrWithdrawn, intake.ErrWithdrawn, intake.ErrWithdrawn},
		},
		{
			name:    "a batch ends before a submission that does not fit",
			records: []intake.Records{lines("1", "2", "3"), lines("4", "5"), lines("6", "7", "8")},
			ids:     []string{"", "", ""},
			batches: []string{"[1 2 3]", "[4 5]", "[6 7 8]"}, withdraw: []int{1},
			outcomes: []error{context.Canceled, intake.ErrWithdrawn, context.Canceled},
		},
		{
			name:    "a submission in two batches",
			records: []intake.Records{lines("1", "2", "3", "4", "5", "6")}, ids: []string{"a"},
			batches: []string{"[1 2 3 4]", "[5 6]"}, withdraw: []int{0},
			outcomes: []error{context.Canceled},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := newIntake(t, intake.Options{}, quiet())
			w := openWithdrawal(t, in)
			subs := make([]*intake.Submission, len(c.records))
			for k, records := range c.records {
				if c.ids[k] == "" {
					subs[k] = submit(t, in, records)
				} else {
					subs[k] = identify(t, in, c.ids[k], records)
				}
			}
			for _, want := range c.batches {
				w.next(want)
			}
			for _, k := range c.withdraw {
				take(t, subs[k])
				take(t, subs[k]) // a second call has no effect
			}
			wantOutcomes(t, subs, c.outcomes...)
			w.settle(w.unsent...)
			for k, err := range c.outcomes {
				if errors.Is(err, context.Canceled) {
					wantOutcomes(t, subs[k:k+1], nil)
				}
			}
			if in.Held() != 0 {
				t.Errorf("%d bytes are held", in.Held())
			}
		})
	}
}

// TestOutcomeAtDeadline checks that Wait returns the outcome of data that is settled at the same
// time as its context ends.
func TestOutcomeAtDeadline(t *testing.T) {
	for range 30 { // the order is random
		synctest.Test(t, func(t *testing.T) {
			in := newIntake(t, intake.Options{}, quiet())
			r := open(t, in, streamtest.Route, nil)
			s := submit(t, in, lines("1"))
			_, b := r.read()
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() { result <- s.Wait(ctx) }()
			synctest.Wait()
			r.settle(b)
			cancel()
			if err := <-result; err != nil {
				t.Errorf("the outcome of settled data: %v", err)
			}
		})
	}
}

// TestRepeatWithdrawn checks that a request that was withdrawn from a route is delivered when it is
// repeated.
func TestRepeatWithdrawn(t *testing.T) {
	in := newIntake(t, intake.Options{}, quiet())
	w := openWithdrawal(t, in)
	first := identify(t, in, "a", lines("1"))
	w.next("[1]")
	take(t, first)
	second := identify(t, in, "a", lines("1"))
	w.settle(w.next("[1]"))
	wantOutcomes(t, []*intake.Submission{first, second}, intake.ErrWithdrawn, nil)
}

// TestWithdrawWithRoutes checks that data is not withdrawn if one of two routes has read it. In one
// case, the second route opens just before the first one withdraws the data. The outcome is then
// unknown.
func TestWithdrawWithRoutes(t *testing.T) {
	h := quiet()
	in := newIntake(t, intake.Options{}, h)
	w := openWithdrawal(t, in)
	first := submit(t, in, lines("1"))
	w.next("[1]")
	second := func() {
		h.SetRoutes(streamtest.Route, "p/b")
		open(t, in, "p/b", nil)
	}
	w.late = second
	take(t, first)
	wantOutcomes(t, []*intake.Submission{first}, intake.ErrUnsettled)
	other := submit(t, in, lines("2"))
	w.next("[2]")
	take(t, other)
	wantOutcomes(t, []*intake.Submission{other}, context.Canceled)
}

// TestWithdrawReadBefore checks that data is not withdrawn if an earlier run of the route, or
// another route, has read it: a worker may have got it.
func TestWithdrawReadBefore(t *testing.T) {
	h := quiet()
	in := newIntake(t, intake.Options{}, h)
	w := openWithdrawal(t, in)
	first := submit(t, in, lines("1"))
	w.next("[1]")
	w = openWithdrawal(t, in) // the route has restarted
	w.next("[1]")
	take(t, first)
	wantOutcomes(t, []*intake.Submission{first}, context.Canceled)
	h.SetRoutes(streamtest.Route, "p/b")
	open(t, in, "p/b", nil)
	second := submit(t, in, lines("2"))
	w.next("[2]")
	h.SetRoutes(streamtest.Route)
	take(t, second)
	wantOutcomes(t, []*intake.Submission{second}, context.Canceled)
	w.settle(w.unsent[0]) // drops the progress of the removed route
	wantOutcomes(t, []*intake.Submission{first, second}, nil, context.Canceled)
	w.withdraw()
	wantOutcomes(t, []*intake.Submission{second}, context.Canceled)
}

// TestWithdrawClosed checks that the reader of a route that has ended withdraws nothing: neither
// after it was closed, nor after the route has opened again. Data that no route has read is
// withdrawn.
func TestWithdrawClosed(t *testing.T) {
	in := newIntake(t, intake.Options{}, quiet())
	w := openWithdrawal(t, in)
	read, unread := submit(t, in, lines("1")), submit(t, in, lines("2"))
	w.limits.Records = 1
	b := w.next("[1]")
	if err := w.reader.Close(); err != nil {
		t.Fatal(err)
	}
	take(t, read)
	take(t, unread)
	outcomes := []error{context.Canceled, intake.ErrWithdrawn}
	wantOutcomes(t, []*intake.Submission{read, unread}, outcomes...)
	openWithdrawal(t, in)
	if w.reader.(stream.WithdrawingReader).Unwanted(b) {
		t.Error("a closed reader wants to withdraw a batch")
	}
	wantOutcomes(t, []*intake.Submission{read, unread}, outcomes...)
}
