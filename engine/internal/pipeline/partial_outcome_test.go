package pipeline

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestPartialOutcomeOfExpandedRecords checks a sink that accepts some records of a batch, and a
// processor that makes two records of each source record, the first of which is dropped. The
// process is killed while a record waits for its retry. The next run must deliver the record.
func TestPartialOutcomeOfExpandedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doubling := fakeProcessor(func(b *stream.Batch) {
			b.Split()
			for _, i := range b.Expand(slices.Repeat([]int{1}, len(b.Records))) {
				b.Records[i+1].Off, b.Records[i+1].Len = b.Records[i].Off, b.Records[i].Len
				b.Drop(i)
			}
		})
		sink := &acceptingSink{refused: "a"}
		route := retrying(time.Minute)
		route.Checkpoint = config.DefaultRoute("r0", "/state").Checkpoint
		route.Processors = []config.Use{use(stream.ProcessorRole, doubling)}
		route.Sink = use(stream.SinkRole, &fakeSink{deliver: sink.deliver})
		source := &fakeSource{lines: []string{"z", "a"}, size: 2}
		run := func(m *vfstest.Mem, d time.Duration) *vfstest.Mem {
			e := jobOf(t, m, Options{}, use(stream.SourceRole, source), route)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.Run(ctx) }()
			time.Sleep(d)
			synctest.Wait()
			conserved(t, e.statusWithoutTree().Routes[0])
			killed := m.Crash(vfstest.DataAll, vfstest.NamesAll, 1)
			stop()
			<-ended
			return killed
		}
		killed := run(vfstest.New(), 10*time.Second)
		sink.refused = ""
		run(killed, 10*time.Minute)
		if !slices.Equal(sink.got, []string{"z", "a"}) {
			t.Errorf("delivered %q, want z and a", sink.got)
		}
	})
}

// acceptingSink accepts each record of a batch on its own. It does not accept the record whose text
// is in the field refused, and asks for another delivery of this record.
type acceptingSink struct {
	refused string
	got     []string
}

func (s *acceptingSink) deliver(_ context.Context, a stream.Attempt) error {
	b := a.Value
	kept := b.AppendKept(nil)
	errs := make([]error, len(kept))
	for n, i := range kept {
		if text := string(b.Text(i)); text == s.refused {
			errs[n] = errors.New("not now")
		} else {
			s.got = append(s.got, text)
		}
	}
	return verdict.Group(b, kept, errs, func(err error) verdict.Verdict {
		if err == nil {
			return verdict.Accepted
		}
		return verdict.Again
	}).Outcome("")
}
