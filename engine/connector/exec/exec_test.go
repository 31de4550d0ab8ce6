package exec_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/exec"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

const patience = 20 * time.Second

// opened opens a sink and returns its lanes.
func opened(t *testing.T, o *exec.Options) (*streamtest.Host, []stream.Lane) {
	t.Helper()
	h := connectortest.NewHost(t)
	s := newSink(t, h, o)
	var lanes []stream.Lane
	if err := s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Lanes: func(all []stream.Lane) {
		lanes = all
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(h.Stop(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return h, lanes
}

var attempts atomic.Uint64

func deliver(ctx context.Context, l stream.Lane, b *stream.Batch) (stream.Report, error) {
	return l.Worker.Deliver(ctx, stream.Attempt{Value: b, ID: attempts.Add(1), Number: 1})
}

// deliverToNext repeats a delivery while the child restarts.
func deliverToNext(ctx context.Context, l stream.Lane, b *stream.Batch) (stream.Report, error) {
	for {
		r, err := deliver(ctx, l, b)
		if e, down := errors.AsType[*stream.Throttled](err); !down ||
			!strings.Contains(e.Error(), "its child") {
			return r, err
		}
	}
}

// texts returns the texts of the records of items.
func texts(items []stream.Item) []string {
	var all []string
	for _, it := range items {
		b := it.Value
		for i := range b.Records {
			all = append(all, string(b.Text(i)))
		}
	}
	return all
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// TestStatuses checks the outcome of each exit status with protocol lines.
func TestStatuses(t *testing.T) {
	died := is[*stream.Died]
	for _, c := range []struct {
		script string
		want   func(error) bool
	}{
		{"cat >/dev/null", func(err error) bool { return err == nil }},
		{"cat >/dev/null; echo out; echo err >&2", func(err error) bool { return err == nil }},
		// the child has not read the batch
		{"exit 0", func(err error) bool { return err != nil && !is[*stream.Rejected](err) && !died(err) }},
		{"exit 1", func(err error) bool {
			return err != nil && !is[*stream.Rejected](err) && !died(err) &&
				!is[*stream.Misconfigured](err)
		}},
		{"exit 65", is[*stream.Rejected]},
		{"exit 75", is[*stream.Throttled]},
		{"exit 64", is[*stream.Misconfigured]},
		{"exit 78", is[*stream.Misconfigured]},
		{"no-such-command", is[*stream.Misconfigured]},
		{"kill -SEGV $$", died},
	} {
		o := exec.DefaultOptions()
		o.Command = []string{"sh", "-c", c.script}
		_, lanes := opened(t, o)
		b := streamtest.Lines(strings.Repeat("x", 1<<20), "y")
		if _, err := deliver(t.Context(), lanes[0], b); !c.want(err) {
			t.Errorf("%q: %v", c.script, err)
		}
	}
	o := exec.DefaultOptions()
	o.Command = []string{"no-such-program"}
	for _, protocol := range []string{exec.Lines, exec.NDJSON, exec.Storm} {
		o.Protocol = protocol
		_, lanes := opened(t, o)
		err := error(nil)
		for range 3 {
			if _, err = deliver(t.Context(), lanes[0], streamtest.Lines("x")); is[*stream.Misconfigured](err) {
				break
			}
		}
		if !is[*stream.Misconfigured](err) || !strings.Contains(err.Error(), "no-such-program") {
			t.Errorf("%s: a program that is not there: %v", protocol, err)
		}
	}
}

// TestUnread checks that status 0 is no delivery while unread input remains in the pipe.
func TestUnread(t *testing.T) {
	for _, c := range []struct {
		script    string
		size      int // bytes in the batch
		delivered bool
	}{
		{"exit 0", 100, false},
		{"exit 0", 1 << 20, false},
		{"head -n 1", 60_000, false}, // head reads a block
		{"head -n 1", 1 << 20, false},
		{"exec 0<&-; exit 0", 100, false},
		{"exec 0<&-; exit 0", 1 << 20, false},
		{"read -r l; exit 0", 100, false}, // a shell reads only up to the line end
		{"cat >/dev/null", 100, true},
		{"cat >/dev/null", 1 << 20, true},
		{"cat >/dev/null; exec 0<&-; exec 1>&-; sleep .1", 1 << 20, true},
	} {
		o := exec.DefaultOptions()
		o.Command = []string{"sh", "-c", c.script}
		_, lanes := opened(t, o)
		batch := streamtest.Lines("first", strings.Repeat("x", c.size))
		_, err := deliver(t.Context(), lanes[0], batch)
		if (err == nil) != c.delivered || is[*stream.Rejected](err) || is[*stream.Died](err) {
			t.Errorf("%q, %d bytes: %v", c.script, c.size, err)
		}
	}
}

// TestRetryOfWholeBatch checks that an answer without delivered records is a failed attempt, not a
// partial delivery that is retried at once.
func TestRetryOfWholeBatch(t *testing.T) {
	o := exec.DefaultOptions()
	o.Protocol = exec.NDJSON
	o.Command = []string{"sh", "-c", `while IFS= read -r l; ` +
		`do echo '{"delivered":true,"retry":[1,0],"error":"busy"}'; done`}
	_, lanes := opened(t, o)
	_, err := deliver(t.Context(), lanes[0], streamtest.Lines("a", "b"))
	if err == nil || is[*stream.Split](err) || err.Error() != "busy" {
		t.Errorf("%T: %v", err, err)
	}
}

// TestRecycledChildren checks a program that ends with status 0 after each answer. A new child must
// replace the ended one each time, and no batch may be blamed.
func TestRecycledChildren(t *testing.T) {
	t.Parallel()
	const serve = `IFS= read -r l || exit 1; id=${l#*:}; ` +
		`echo "{\"id\":${id%%,*},\"delivered\":true}"; `
	for name, script := range map[string]string{"at once": serve + "exit 0",
		"later": serve + "sleep .01; exit 0"} {
		o := exec.DefaultOptions()
		o.Command, o.Protocol = []string{"sh", "-c", script}, exec.NDJSON
		_, lanes := opened(t, o)
		for range 30 {
			for attempt := 1; ; attempt++ {
				_, err := deliver(t.Context(), lanes[0], streamtest.Lines("x"))
				if err == nil {
					break
				}
				if !is[*stream.Throttled](err) || attempt > 100 {
					t.Fatalf("%s: attempt %d: %v", name, attempt, err)
				}
			}
		}
	}
}

// TestHang checks that a hanging child is killed with its group when the attempt is abandoned, and
// that its batch is blamed.
func TestHang(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{exec.Lines, exec.NDJSON} {
		o := exec.DefaultOptions()
		reading := filepath.Join(t.TempDir(), "reading")
		o.Command = []string{"sh", "-c", `read -r l; : >"$0"; sleep 1000 & wait`, reading}
		o.Protocol = protocol
		_, lanes := opened(t, o)
		ctx, cancel := context.WithCancelCause(t.Context())
		abandoned := make(chan time.Time, 1)
		go func() {
			if !eventually(func() bool { _, err := os.Stat(reading); return err == nil }) {
				t.Errorf("%s: the child does not read", protocol)
			}
			abandoned <- time.Now()
			cancel(stream.ErrAbandoned)
		}()
		_, err := deliver(ctx, lanes[0], streamtest.Lines("x"))
		if took := time.Since(<-abandoned); took > patience/4 || !is[*stream.Died](err) ||
			!errors.Is(err, stream.ErrAbandoned) {
			t.Errorf("%s: %v after %v, want a death by abandon", protocol, err, took)
		}
	}
}

// TestAnswers checks the outcomes of valid and invalid answers.
func TestAnswers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "received")
	o := exec.DefaultOptions()
	o.Command, o.Protocol = command(t, exec.NDJSON, file), exec.NDJSON
	h, lanes := opened(t, o)
	said := func(answer string, others ...string) (stream.Report, error) {
		t.Helper()
		return deliverToNext(t.Context(), lanes[0],
			streamtest.Lines(append([]string{"say!" + answer}, others...)...))
	}
	split := func(err error) *stream.Split { e, _ := errors.AsType[*stream.Split](err); return e }

	r, err := said(`{"delivered":true,"credit":7,"epoch":2,"queue_len":3,"slots":4,"queue_wait":0.5,"service":1e-3,"more":[]}`)
	want := stream.Report{Credit: 7, Epoch: 2, Taken: 1, QueueLen: 3, Slots: 4,
		QueueWait: time.Second / 2, Service: time.Millisecond}
	if err != nil || r != want {
		t.Errorf("delivered: %+v, %v", r, err)
	}
	_, err = said(`{"id":ID,"delivered":true,"refused":[1,{"record":3,"reason":"no `+
		`user"}],"retry":[2]}`, "b", "c", "d", "e")
	s := split(err)
	if s == nil {
		t.Fatalf("in part: %v", err)
	}
	if !slices.Equal(texts(s.Refused), []string{"b", "d"}) ||
		!slices.Equal(texts(s.Rest), []string{"c"}) || len(texts(s.Done)) != 2 {
		t.Errorf("in part: %q refused, %q again, %q done", texts(s.Refused), texts(s.Rest),
			texts(s.Done))
	}
	reasons, _ := s.Refusals[0].(*stream.RefusedError)
	refused := s.Refused[0].Value
	if reasons == nil || fmt.Sprint(reasons.Reasons[string(refused.AppendRecordID(nil, 1))]) !=
		"no user" || len(reasons.Reasons) != 2 {
		t.Errorf("reasons: %v", reasons)
	}
	_, err = said(`{"delivered":false,"retry_after":1.5,"error":"full"}`)
	if e, ok := errors.AsType[*stream.Throttled](err); !ok || e.After != 1500*time.Millisecond ||
		!strings.Contains(err.Error(), "full") {
		t.Errorf("throttled: %v", err)
	}
	for answer, want := range map[string]func(error) bool{
		`{"delivered":true,"rejected":false,"misconfigured":false,"retry_after":0}`: func(
			err error) bool {
			return err == nil
		},
		`{"delivered":false,"rejected":true}`:      is[*stream.Rejected],
		`{"delivered":false,"misconfigured":true}`: is[*stream.Misconfigured],
		`{"error":"again"}`: func(err error) bool {
			return err != nil && err.Error() == "again"
		},
	} {
		if _, err := said(answer); !want(err) {
			t.Errorf("%s: %v", answer, err)
		}
	}
	for _, wrong := range []string{
		"hello", "[]", `{"delivered":1}`, `{"id":99999999,"delivered":true}`,
		`{"delivered":true,"retry":[1]}`,
		`{"delivered":true,"retry":[0,0]}`,
		`{"delivered":true,"refused":[-1]}`, `{"delivered":true,"refused":[{"reason":"x"}]}`,
		`{"delivered":false,"refused":[0]}`,
		`{"delivered":false,"retry_after":-1}`,
		`{"delivered":true,"rejected":true}`, `{"delivered":true,"misconfigured":true}`,
		`{"delivered":true,"rejected":true,"refused":[0]}`, `{"delivered":true,"retry_after":5}`,
	} {
		if _, err := said(wrong); err == nil || is[*stream.Split](err) ||
			is[*stream.Rejected](err) {
			t.Errorf("%s: %v, want a retryable error", wrong, err)
		}
		if _, err := said(`{"delivered":true}`); err != nil {
			t.Errorf("after %s: %v, want a new child that delivers", wrong, err)
		}
	}
	if h.Counted("worker_deaths") != 0 {
		t.Error("a sink counts no deaths; the engine does")
	}
}

// TestDeathsOfChildren checks that the batch during which a child dies is blamed (error
// stream.Died), and that the next child delivers the next batch.
func TestDeathsOfChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "received")
	o := exec.DefaultOptions()
	o.Command, o.Protocol, o.InFlight = command(t, exec.NDJSON, file), exec.NDJSON, 2
	_, lanes := opened(t, o)
	if _, err := deliver(t.Context(), lanes[0], streamtest.Lines("a")); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"exit!", "kill!"} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := deliver(ctx, lanes[0], streamtest.Lines("b", word))
		if !is[*stream.Died](err) || ctx.Err() != nil {
			t.Errorf("%s: %v, want a death", word, err)
		}
		if word == "exit!" && !strings.Contains(fmt.Sprint(err), "told to exit") {
			t.Errorf("%v does not say what the child said last", err)
		}
		if _, err := deliverToNext(ctx, lanes[0], streamtest.Lines("after "+word)); err != nil {
			t.Errorf("after %s: %v", word, err)
		}
		cancel()
	}
	if got := received(t, file); !slices.Equal(got, []string{"a", "after exit!", "after kill!"}) {
		t.Errorf("received %q", got)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"id":1,"delivered":true,"refused":[1,{"record":0,"reason":"r"}],"retry":[2]}`))
	f.Add([]byte(`{"delivered":false,"retry_after":1e308,"error":"x"}`))
	f.Add([]byte(`{"queue_wait":-1,"service":1e300,"delivered":true}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		b := streamtest.Lines("a", "b", "c")
		report, outcome, err := exec.ParseForTest(line, b)
		if err != nil {
			return
		}
		if report.QueueWait < 0 || report.Service < 0 {
			t.Errorf("%q: %+v", line, report)
		}
		if s, ok := errors.AsType[*stream.Split](outcome); ok {
			all := append(append(texts(s.Done), texts(s.Rest)...), texts(s.Refused)...)
			if slices.Sort(all); !slices.Equal(all, []string{"a", "b", "c"}) {
				t.Errorf("%q shares out %q", line, all)
			}
		}
	})
}
