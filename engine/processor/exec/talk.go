package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/child/multilang"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
)

// maxLine bounds a line from a child, in bytes.
const maxLine = 64 << 20

// talk is the talk with one child. It implements child.Session; work is called by one goroutine.
type talk struct {
	o     *Options
	p     *child.Process
	bolt  *multilang.Bolt // of storm; then it does the talking
	ended chan struct{}   // closed by End
	ids   uint64

	mu     sync.Mutex // guards what follows
	want   int        // lines that are still to come
	lines  [][]byte   // those that came since they were asked for
	came   chan struct{}
	worked bool
	err    error
}

func newTalk(p *child.Process, o *Options, pids string, h penstock.Host) *talk {
	t := &talk{o: o, p: p, ended: make(chan struct{}), came: make(chan struct{}, 1)}
	if o.Protocol == Storm {
		conf := make(map[string]any, len(o.Conf))
		for name, value := range o.Conf {
			conf[name] = value
		}
		t.bolt = multilang.NewBolt(p, multilang.Options{
			Handshake: multilang.NewHandshake(pids, "records", "exec", []string{"message"}, conf),
			Component: "records", Task: multilang.SourceTask, Pending: o.Pending, Timeout: o.Timeout, Log: h.Log(), Count: h.Count,
		})
	}
	return t
}

// Serve implements child.Session.
func (t *talk) Serve(ctx context.Context) error {
	if t.bolt != nil {
		return t.bolt.Serve(ctx)
	}
	return child.ServeLines(t.p, maxLine, t.take)
}

func (t *talk) take(line []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.want == 0 {
		return fmt.Errorf("it has written a line that nobody has asked for: %q", child.Quoted(line))
	}
	t.want--
	t.lines = append(t.lines, line)
	t.worked = true
	select {
	case t.came <- struct{}{}:
	default: // it will look anyway
	}
	return nil
}

// End implements child.Session.
func (t *talk) End(err error) {
	if t.bolt != nil {
		t.bolt.End(err)
	}
	t.mu.Lock()
	t.err = err
	t.mu.Unlock()
	close(t.ended)
}

// Did implements child.Session.
func (t *talk) Did() (worked, busy bool) {
	if t.bolt != nil {
		return t.bolt.Did()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.worked, t.want > 0
}

// work has the child work on some records of b and notes what became of those that it answered for. The error is what the
// child died of, if it did.
func (t *talk) work(ctx context.Context, b *penstock.Batch, part []*state) error {
	switch t.o.Protocol {
	case Storm:
		return t.workStorm(ctx, b, part)
	case NDJSON:
		return t.workNDJSON(ctx, b, part)
	}
	return t.workLines(ctx, b, part)
}

func (t *talk) workLines(ctx context.Context, b *penstock.Batch, part []*state) error {
	var text []byte
	var asked []*state
	for _, s := range part {
		from := len(text)
		if t.o.Format == JSON {
			text = ndjson.AppendRecord(text, b, s.index)
		} else {
			text = append(text, b.Text(s.index)...)
		}
		if bytes.IndexByte(text[from:], '\n') >= 0 {
			s.done, s.reason = true, errors.New("it holds a line end, and the child is to get it as one line; use protocol ndjson")
			text = text[:from]
			continue
		}
		text = append(text, '\n')
		asked = append(asked, s)
	}
	lines, died := t.ask(ctx, text, len(asked))
	for n, line := range lines {
		asked[n].done, asked[n].made = true, []made{{text: line}}
	}
	return died
}

// answer is what a child says of a batch: docs/formats/exec-ndjson.md.
type answer struct {
	ID      *uint64           `json:"id"`
	Records []json.RawMessage `json:"records"`
	Refused []struct {
		Record *int   `json:"record"`
		Reason string `json:"reason"`
	} `json:"refused"`
	Err string `json:"error"` // none was done; again later
}

func (t *talk) workNDJSON(ctx context.Context, b *penstock.Batch, part []*state) error {
	t.ids++
	text := append(strconv.AppendUint([]byte(`{"id":`), t.ids, 10), `,"records":[`...)
	for n, s := range part {
		if n > 0 {
			text = append(text, ',')
		}
		text = ndjson.AppendRecord(text, b, s.index)
	}
	lines, died := t.ask(ctx, append(text, "]}\n"...), 1)
	if len(lines) == 0 {
		return died
	}
	if err := t.understand(lines[0], part); err != nil {
		t.p.Kill(err)
		<-t.ended
		return t.err
	}
	return died
}

func (t *talk) understand(line []byte, part []*state) error {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("its answer %q is none of the protocol ndjson: %w; all else belongs on standard error",
			child.Quoted(line), err)
	}
	switch {
	case a.ID != nil && *a.ID != t.ids:
		return fmt.Errorf("its answer is to batch %d, and it has batch %d", *a.ID, t.ids)
	case a.Err != "":
		return nil
	case len(a.Records) != len(part):
		return fmt.Errorf("its answer has %d records, and the batch has %d; one that is dropped is null", len(a.Records), len(part))
	}
	all := make([][]made, len(part))
	for n, value := range a.Records {
		m, err := madeOf(value)
		if err != nil {
			return fmt.Errorf("record %d of its answer: %w", n, err)
		}
		all[n] = m
	}
	reasons := make([]error, len(part))
	for _, r := range a.Refused {
		if r.Record == nil || *r.Record < 0 || *r.Record >= len(part) {
			return fmt.Errorf("its answer refuses a record that the batch of %d does not have", len(part))
		}
		reason := r.Reason
		if reason == "" {
			reason = "the child gave no reason"
		}
		reasons[*r.Record] = errors.New(reason)
	}
	for n, s := range part {
		s.done, s.made, s.reason = true, all[n], reasons[n]
	}
	return nil
}

// ask writes text and returns the n lines that come back; fewer where the child dies, or is silent for too long and is
// killed: then why.
func (t *talk) ask(ctx context.Context, text []byte, n int) ([][]byte, error) {
	t.mu.Lock()
	t.want, t.lines = n, nil
	t.mu.Unlock()
	for len(text) > 0 {
		part := text[:min(len(text), writeStep)]
		text = text[len(part):]
		step, cancel := context.WithTimeoutCause(ctx, t.o.Timeout, t.silent())
		err := t.p.Write(step, part)
		cancel()
		if err != nil {
			t.p.Kill(err) // it is dead already, or does not read
			break
		}
	}
	timer := time.NewTimer(t.o.Timeout)
	defer timer.Stop()
	for {
		select {
		case <-t.came:
		case <-timer.C:
			t.p.Kill(t.silent())
		case <-t.ended:
			t.mu.Lock()
			defer t.mu.Unlock()
			if len(t.lines) == n {
				return t.lines, nil // its last words
			}
			return t.lines, t.err
		case <-ctx.Done():
			t.p.Kill(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
		t.mu.Lock()
		lines := t.lines
		t.mu.Unlock()
		if len(lines) == n {
			return lines, nil
		}
		timer.Reset(t.o.Timeout)
	}
}

// writeStep is how many bytes a child must read within Timeout.
const writeStep = 4 << 10

func (t *talk) silent() error {
	return fmt.Errorf("it has said nothing for %v, with records in hand", t.o.Timeout)
}

// workStorm gives a tuple for each record. What was emitted counts where the tuple was acked; without emits the record is
// dropped. A tuple that was failed is not done.
func (t *talk) workStorm(ctx context.Context, b *penstock.Batch, part []*state) error {
	if err := t.bolt.Ready(ctx); err != nil {
		return err
	}
	indexes := make([]int, len(part))
	for n, s := range part {
		indexes[n] = s.index
	}
	work, err := t.bolt.Do(ctx, b, indexes)
	for _, e := range work.Emits {
		if s := part[e.Number]; work.Acked[e.Number] {
			m, err := ofTuple(t.o.Fields, e.Tuple)
			if err != nil {
				s.reason = err
				continue
			}
			s.made = append(s.made, m)
		}
	}
	for n, s := range part {
		s.done = work.Acked[n]
	}
	if work.Err != nil {
		return work.Err
	}
	return err
}
