package pipeline

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// patientSource is a fakeSource that tells before it waits, and panics at the read that dies says.
type patientSource struct {
	fakeSource
	dies int
}

// Open implements penstock.Source.
func (s *patientSource) Open(ctx context.Context, o penstock.OpenOptions) (penstock.Reader, error) {
	r, err := s.fakeSource.Open(ctx, o)
	return &patientReader{fakeReader: r.(*fakeReader), dies: s.dies}, err
}

type patientReader struct {
	*fakeReader
	waits func()
	reads int
	dies  int
}

// BeforeWait implements penstock.Waiter.
func (r *patientReader) BeforeWait(f func()) { r.waits = f }

// Read implements penstock.Reader.
func (r *patientReader) Read(ctx context.Context, b *penstock.Batch) error {
	if r.reads++; r.reads == r.dies {
		panic("the source dies")
	}
	if r.at == len(r.s.lines) {
		r.waits()
	}
	return r.fakeReader.Read(ctx, b)
}

// What a reader has read before it waits, or dies, is delivered without anything further, in order, however many batches were held by
// then, and however few the memory has room for.
func TestHeldBatchesAreHandedOn(t *testing.T) {
	for lines := range 2*heldMost + 2 {
		for _, dies := range []bool{false, true} {
			for _, memory := range []penstock.Size{1, 32 << 20} {
				t.Run(fmt.Sprintf("%d lines, dies %v, memory %v", lines, dies, memory), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { heldAreHandedOn(t, lines, dies, memory) })
				})
			}
		}
	}
}

func heldAreHandedOn(t *testing.T, lines int, dies bool, memory penstock.Size) {
	source := &patientSource{fakeSource: fakeSource{lines: numbered(lines), size: 1}}
	if dies {
		source.dies = lines + 1
	}
	sink := &fakeSink{}
	inOrder := config.DefaultRoute("", "/state").Flow
	inOrder.Window, inOrder.Order = "queue", "partition"
	e := jobOf(t, vfstest.New(), Options{Once: dies}, use(penstock.SourceRole, source),
		config.Route{Sink: use(penstock.SinkRole, sink), Memory: memory, Flow: inOrder})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	time.Sleep(100 * time.Millisecond) // of a start-up's waits
	sink.mu.Lock()
	if want := source.lines; !slices.Equal(sink.got, want) {
		t.Errorf("delivered %q, want %q", sink.got, want)
	}
	sink.mu.Unlock()
	cancel()
	if err := <-ended; dies && err == nil {
		t.Error("the source's death was not reported")
	}
}

// heldFast and heldMost say when several batches are handed on together; each is once in it, in read order.
func TestHeld(t *testing.T) {
	var h held
	jobs := make([]*job, heldMost)
	for i := range jobs {
		jobs[i] = &job{}
		h.add(jobs[i])
		if more := h.more(heldFast); more != (i < heldMost-1) {
			t.Errorf("after %d batches that were read fast, more() = %v", i+1, more)
		}
		if h.more(heldFast + 1) {
			t.Errorf("after %d batches, the last one read slowly, more() = true", i+1)
		}
	}
	j := h.first
	for i := range jobs {
		if j != jobs[i] {
			t.Fatalf("batch %d is not in its place", i)
		}
		j = j.rest
	}
	if j != nil {
		t.Error("something is behind the last batch")
	}
}
