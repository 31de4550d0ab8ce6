package pipeline

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestRepeatMeetsWithdrawnAccount withdraws a batch with data of two partitions: a request, which
// its client may repeat, and other data. The withdrawal removes the account of the request (its
// progress in memory). The request is read again before the withdrawal settles the range of the
// other data. This must not change the new account of the request, which starts at 0.
func TestRepeatMeetsWithdrawnAccount(t *testing.T) {
	k := newBooks(unknown)
	request, other := &stream.Partition{ID: "request-a"}, &stream.Partition{ID: "main"}
	b := lines(request, 0, 2, false)
	rest := lines(other, 0, 3, false)
	b.Data, b.Origins = append(b.Data, rest.Data...), b.Origins+rest.Origins
	b.Spans = append(b.Spans, rest.Spans...)
	if err := k.open(b); err != nil {
		t.Fatal(err)
	}
	closing := withdrawAccounts(k, b, func(id string) bool { return id == request.ID })
	if len(closing) != 1 || closing[0].Part != other || k.parts[request.ID] != nil {
		t.Fatalf("to close: %v; the request has the account %v; want the other range and none",
			closing, k.parts[request.ID])
	}
	if k.counts != (counts{}) {
		t.Errorf("a withdrawn batch is counted: %+v", k.counts)
	}
	again := lines(request, 0, 2, false)
	if err := k.open(again); err != nil {
		t.Fatal(err)
	}
	for _, s := range closing {
		k.settleRange(k.parts[s.Part.ID], s.Range)
		k.markDirty(k.parts[s.Part.ID])
	}
	for _, m := range k.takeUnsaved().marks {
		want := map[string]int64{request.ID: 0, other.ID: 6}[m.Part.ID]
		if m.Watermark.Num != want || len(m.Above) > 0 {
			t.Errorf("%s is settled to %d and %v, want %d", m.Part.ID, m.Watermark.Num, m.Above,
				want)
		}
	}
	settle(t, k, again, false)
	marks := k.takeUnsaved().marks
	if len(marks) != 1 || marks[0].Part.ID != request.ID || marks[0].Watermark.Num != 4 {
		t.Errorf("after the repeated request: %+v, want request-a to 4", marks)
	}
	balance(t, k, nil, 0)
}

// eagerSource is a fakeSource that asks its route to withdraw unwanted batches before the route has
// opened. It reports no batch as unwanted, so none may be withdrawn.
type eagerSource struct{ fakeSource }

// Open implements stream.Source.
func (s *eagerSource) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	o.Withdraw()
	r, err := s.fakeSource.Open(ctx, o)
	o.Withdraw()
	return eagerReader{r.(*fakeReader)}, err
}

type eagerReader struct{ *fakeReader }

// Unwanted implements stream.WithdrawingReader.
func (eagerReader) Unwanted(*stream.Batch) bool { return false }

// Withdrawn implements stream.WithdrawingReader.
func (eagerReader) Withdrawn(*stream.Batch) {}

// ReadsAgain implements stream.WithdrawingReader.
func (eagerReader) ReadsAgain(string) bool { return false }

// TestWithdrawWhileOpening checks a source that asks its route to withdraw batches while the route
// opens. The route must then deliver everything.
func TestWithdrawWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &fakeSink{}
		source := &eagerSource{fakeSource{lines: numbered(5), size: 2}}
		e := jobOf(t, vfstest.New(), Options{Once: true}, use(stream.SourceRole, source),
			config.Route{Sink: use(stream.SinkRole, sink)})
		begun := time.Now()
		if err := e.Run(t.Context()); err != nil || time.Since(begun) > time.Minute {
			t.Errorf("Run = %v after %v", err, time.Since(begun))
		}
		got := sink.got
		if slices.Sort(got); !slices.Equal(got, numbered(5)) {
			t.Errorf("delivered %q, want %q", got, numbered(5))
		}
	})
}
