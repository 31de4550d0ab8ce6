package exec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/engine/kit/child/multilang"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// maxLine is the maximum length of a line from a child in bytes.
const maxLine = 64 << 20

// phase is the state of the conversation with a child.
//
//	fresh ──ask──▶ asking ──released──▶ answered ──ask──▶ asking
//
// The processor asks by sending records. The answer has a known number of lines. A line that comes
// after the answer, or before the child was asked, is a stray line. In the protocol `lines`, the
// processor holds the answer back for a short time, to detect stray lines. Then it releases the
// answer, which means that it uses the answer to change the records.
type phase uint8

const (
	fresh    phase = iota // the child was not asked yet
	asking                // the answer is not complete, or not released
	answered              // the answer was released; a stray line may belong to it
)

// strayError means that a child has written a stray line: output that belongs to no answer. In the
// protocol `lines`, it is then unknown to which records the child's other lines belong.
type strayError struct{ line string }

func (e *strayError) Error() string {
	return fmt.Sprintf("it wrote an unexpected line: %q; write one line for each line read and "+
		"everything else to standard error, or use protocol ndjson",
		e.line)
}

// session is the conversation with one child. It implements child.Session. Only one goroutine may
// call work.
type session struct {
	o     *Options
	p     *child.Process
	host  stream.Host
	bolt  *multilang.Bolt // with storm: the session with the bolt, which this one wraps
	ended chan struct{}   // closed by End
	ids   uint64
	// refusal is the error with which the child has failed all records of its last batch
	refusal error

	mu     sync.Mutex // guards the fields below
	phase  phase
	want   int      // number of lines of the answer that have not come yet
	lines  [][]byte // lines of the answer that have come
	came   chan struct{}
	worked bool // an answer was released
	err    error
}

func newSession(p *child.Process, o *Options, pids string, h stream.Host) *session {
	t := &session{o: o, p: p, host: h, ended: make(chan struct{}), came: make(chan struct{}, 1)}
	if o.Protocol == Storm {
		t.bolt = multilang.NewBolt(p, multilang.Options{
			Handshake: multilang.NewHandshake(pids, "records", o.Conf),
			Component: "records", Task: multilang.SourceTask, Pending: o.Pending,
			Timeout: o.Timeout, KeepEmits: true, Log: h.Log(), Count: h.Count,
		})
	}
	return t
}

// Serve implements child.Session.
func (t *session) Serve(ctx context.Context) error {
	if t.bolt != nil {
		return t.bolt.Serve(ctx)
	}
	return child.ServeLines(t.p, maxLine, t.handleLine)
}

func (t *session) handleLine(line []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.want == 0 {
		return t.strayLocked(line)
	}
	t.want--
	t.lines = append(t.lines, line)
	select {
	case t.came <- struct{}{}:
	default: // a wake-up is pending
	}
	return nil
}

// strayLocked counts a stray line (output that belongs to no answer) and returns its error. In the
// protocol `lines`, a stray line may be the rest of an answer that was already used. Records may
// then have got the results of other records, and strayLocked reports a fault.
func (t *session) strayLocked(line []byte) error {
	err := &strayError{string(child.Quoted(line))}
	t.host.Count("stray_lines", 1)
	if t.phase == answered && t.o.Protocol == Lines {
		t.host.Fault(fmt.Errorf("records may be assigned to the wrong input: a child of %s: %w",
			t.o.Command[0], err))
	}
	return err
}

// End implements child.Session.
func (t *session) End(err error) {
	if t.bolt != nil {
		t.bolt.End(err)
	}
	t.mu.Lock()
	t.err = err
	t.mu.Unlock()
	close(t.ended)
}

// Did implements child.Session.
func (t *session) Did() (worked, busy bool) {
	if t.bolt != nil {
		return t.bolt.Did()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.worked, t.want > 0
}

// work passes the given records (part) to the child, and stores the result of each record in its
// state. If the child has died, work returns the reason.
func (t *session) work(ctx context.Context, b *stream.Batch, part []*state) error {
	switch t.o.Protocol {
	case Storm:
		return t.workStorm(ctx, b, part)
	case NDJSON:
		return t.workNDJSON(ctx, b, part)
	}
	return t.workLines(ctx, b, part)
}

func (t *session) workLines(ctx context.Context, b *stream.Batch, part []*state) error {
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
			s.done, s.reason = true, errors.New(
				"it has a line end, but the child reads it as one line; use protocol ndjson")
			text = text[:from]
			continue
		}
		text = append(text, '\n')
		asked = append(asked, s)
	}
	if len(asked) == 0 {
		return nil
	}
	lines, died := t.send(ctx, text, len(asked))
	for n, line := range lines {
		asked[n].done, asked[n].results = true, []result{{text: line}}
	}
	return died
}

// answer is a child's answer to a batch; see docs/exec.md.
type answer struct {
	ID      *uint64           `json:"id"`
	Records []json.RawMessage `json:"records"`
	Refused []struct {
		Record *int   `json:"record"`
		Reason string `json:"reason"`
	} `json:"refused"`
	Err string `json:"error"` // no record was processed; send them again later
}

func (t *session) workNDJSON(ctx context.Context, b *stream.Batch, part []*state) error {
	t.ids++
	text := append(strconv.AppendUint([]byte(`{"id":`), t.ids, 10), `,"records":[`...)
	for n, s := range part {
		if n > 0 {
			text = append(text, ',')
		}
		text = ndjson.AppendRecord(text, b, s.index)
	}
	lines, died := t.send(ctx, append(text, "]}\n"...), 1)
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

func (t *session) understand(line []byte, part []*state) error {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("its response %q is not valid in protocol ndjson: %w; write other "+
			"output to standard error",
			child.Quoted(line), err)
	}
	switch {
	case a.ID != nil && *a.ID != t.ids:
		return fmt.Errorf("its response is for batch %d, but it has batch %d", *a.ID, t.ids)
	case a.Err != "":
		t.refusal = errors.New(a.Err)
		return nil
	case len(a.Records) != len(part):
		return fmt.Errorf("its response has %d records, but the batch has %d; write null for a "+
			"dropped record", len(a.Records), len(part))
	}
	all := make([][]result, len(part))
	for n, value := range a.Records {
		m, err := resultsOf(value)
		if err != nil {
			return fmt.Errorf("record %d of its response: %w", n, err)
		}
		all[n] = m
	}
	reasons := make([]error, len(part))
	for _, r := range a.Refused {
		if r.Record == nil || *r.Record < 0 || *r.Record >= len(part) {
			return fmt.Errorf("its response refuses a record that is not in the batch of %d",
				len(part))
		}
		reasons[*r.Record] = errors.New(cmp.Or(r.Reason, "the child gave no reason"))
	}
	for n, s := range part {
		s.done, s.results, s.reason = true, all[n], reasons[n]
	}
	return nil
}

// send writes text to the child, and returns the n lines of the answer. It returns an error if the
// child has died before the answer was complete, or has written a stray line. If the child is
// silent for the time of the option timeout, or if ctx ends, send kills the child and returns an
// error.
func (t *session) send(ctx context.Context, text []byte, n int) ([][]byte, error) {
	t.mu.Lock()
	quiet := t.quietLocked()
	t.phase, t.want, t.lines = asking, n, nil
	t.mu.Unlock()
	for len(text) > 0 {
		part := text[:min(len(text), writeStep)]
		text = text[len(part):]
		step, cancel := context.WithTimeoutCause(ctx, t.o.Timeout, t.silent())
		err := t.p.Write(step, part)
		cancel()
		if err != nil {
			t.p.Kill(err)
			break
		}
	}
	timer := time.NewTimer(t.o.Timeout)
	defer timer.Stop()
	complete := false
	var last time.Time        // when the last line came
	var longest time.Duration // longest pause between two lines of the answer
	for {
		select {
		case <-t.came:
			now := time.Now()
			if !last.IsZero() {
				longest = max(longest, now.Sub(last))
			}
			last = now
		case <-timer.C:
			if unread, known := t.p.UnreadOutput(); complete && known && unread > 0 {
				timer.Reset(quiet) // the output not read yet may have a stray line
				continue
			}
			if lines, ok := t.release(complete); ok {
				return lines, nil
			}
			t.p.Kill(t.silent())
		case <-t.ended: // closed when all output was read
			if _, stray := errors.AsType[*strayError](t.err); !stray {
				if lines, ok := t.release(true); ok {
					return lines, nil
				}
			}
			return nil, t.err
		case <-ctx.Done():
			t.p.Kill(context.Cause(ctx))
			return nil, context.Cause(ctx)
		}
		t.mu.Lock()
		complete = t.want == 0
		t.mu.Unlock()
		switch {
		case complete && quiet > 0:
			timer.Reset(min(max(quiet, gapsOfQuiet*longest), t.o.Timeout))
		case complete:
			lines, _ := t.release(true)
			return lines, nil
		default:
			timer.Reset(t.o.Timeout)
		}
	}
}

// release returns the lines of the child's answer, and ends the wait for stray lines (output that
// belongs to no answer). ok is false if the answer is not complete.
func (t *session) release(complete bool) (lines [][]byte, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !complete || t.want > 0 {
		return nil, false
	}
	t.phase, t.worked = answered, true
	return t.lines, true
}

// firstQuiet is a factor for the first answer of a child, which is held back for at least
// firstQuiet times the option `quiet`. Later answers are held back for at least the option itself.
// The first answer needs more time, because a program may write other output at its start. No
// answer is held back for longer than the option `timeout`.
const firstQuiet = 10

// gapsOfQuiet is a factor. A complete answer is held back for at least gapsOfQuiet times the
// longest pause between its lines, to detect a stray line (output that belongs to no answer). A
// child that pauses within an answer may pause as long before a stray line.
const gapsOfQuiet = 2

// quietLocked returns the minimum time for which a complete answer is held back to detect a stray
// line (output that belongs to no answer). It is 0 except in the protocol `lines`: in the others,
// an answer names the batch or record that it answers.
func (t *session) quietLocked() time.Duration {
	switch {
	case t.o.Protocol != Lines:
		return 0
	case t.worked:
		return t.o.Quiet
	}
	return firstQuiet * t.o.Quiet
}

// writeStep is the number of bytes that a child must read within the option timeout.
const writeStep = 4 << 10

func (t *session) silent() error {
	return fmt.Errorf("it wrote nothing for %v while it had records", t.o.Timeout)
}

// workStorm sends a tuple for each record. The child may emit tuples for this tuple before it acks
// or fails it. If it acks the tuple, the emitted tuples are the results, and a record without
// results is dropped. If it fails the tuple, the record is sent again.
func (t *session) workStorm(ctx context.Context, b *stream.Batch, part []*state) error {
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
			s.results = append(s.results, m)
		}
	}
	for n, s := range part {
		s.done = work.Acked[n]
	}
	t.refusal = errors.New("the bolt failed the tuples")
	if work.Err != nil {
		return work.Err
	}
	return err
}
