package multilang

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child"
	"github.com/penstock-io/penstock/supervise"
)

// Process has the methods of a child process that a [Bolt] uses. It is usually a *child.Process.
type Process interface {
	io.Reader                                        // its standard output
	Write(ctx context.Context, message []byte) error // to its standard input; whole messages
	Kill(cause error)
}

// Options are the options of a [Bolt].
type Options struct {
	Handshake Handshake
	Component string        // component name of the tuples sent to the child
	Task      int           // task id of that component
	Pending   int           // maximum number of unanswered tuples of a child
	Timeout   time.Duration // a child without a sign of life for this long is killed
	KeepEmits bool          // store emitted tuples in Work.Emits; otherwise they are only counted
	Log       *slog.Logger  // for the child's log messages
	Attrs     []any         // attributes of these messages
	Count     func(name string, n int64)
}

const (
	heartbeatEvery = time.Second
	maxMessage     = 16 << 20 // bytes of one message
	// maxWaiting limits the task ids (answers to emits) and heartbeats that are queued for a child
	// that does not read them. If more are queued when the child emits a tuple, it is killed.
	maxWaiting = 10_000
	// maxEmitted limits the memory in bytes for the stored emits of one unanswered tuple. A child
	// that exceeds it is killed.
	maxEmitted = 64 << 20
	emitSize   = 256 // memory of an emit without its values
)

// Tuple is a tuple that the child must process.
type Tuple struct {
	Values []byte // its JSON, brackets included
	Of     *Work
	Number int // index of the tuple in its Work
}

// Emit is a tuple that a child has emitted.
type Emit struct {
	Message
	// Number is the number of the tuple to which the emit belongs. The anchors of an emit are the
	// tuples from which the child has made it. The emit belongs to its first anchor or, if it has
	// none, to the oldest unanswered tuple.
	Number int
}

// Work is a set of tuples from one caller, with their results. Only the bolt may access the results
// until Done is closed or the child has ended.
type Work struct {
	Acked, Failed []bool // indexed by tuple number
	Emits         []Emit // with KeepEmits, in the order of emission; also those of failed tuples
	Done          chan struct{}
	Err           error // why some tuples were not answered
	// Blamed is the number of the tuple that probably made the child exit; -1 if this Work has no
	// such tuple.
	Blamed int

	open int
}

// NewWork returns the Work for n tuples; n must be positive.
func NewWork(n int) *Work {
	return &Work{Acked: make([]bool, n), Failed: make([]bool, n), Done: make(chan struct{}),
		Blamed: -1, open: n}
}

// Bolt is the exchange of messages with one child over Storm's multilang protocol. In this
// protocol, a bolt is a component that processes tuples. Bolt implements child.Session. Give may be
// called concurrently.
type Bolt struct {
	o     Options
	p     Process
	room  chan struct{} // one token for each unanswered tuple
	ready chan struct{} // closed when the child has answered the handshake
	ended chan struct{} // closed by End

	mu      sync.Mutex // guards the fields below
	signal  chan struct{}
	out     []byte        // messages to write
	waiting int           // task ids and heartbeats in out
	written chan struct{} // closed when out has been taken by the writer
	next    uint64
	open    map[ID]*given
	// tuples in the order of Give; answered ones are removed from the front
	oldest []*given
	seen   time.Time // the last sign of life
	begun  bool
	worked bool
	err    error
}

// given is a tuple that was queued for the child, with its id in the protocol.
type given struct {
	id ID
	Tuple
	answered bool
	emitted  int // memory of its stored emits in bytes
}

// NewBolt returns a Bolt for a child that has just started.
func NewBolt(p Process, o Options) *Bolt {
	return &Bolt{
		o: o, p: p, room: make(chan struct{}, o.Pending), ready: make(chan struct{}),
		ended:  make(chan struct{}),
		signal: make(chan struct{}, 1), written: make(chan struct{}), open: make(map[ID]*given),
		seen: time.Now(),
	}
}

// Serve implements child.Session.
func (b *Bolt) Serve(ctx context.Context) error {
	hello, err := b.o.Handshake.Append(nil)
	if err != nil {
		b.p.Kill(err)
		return err
	}
	b.mu.Lock()
	b.out = append(hello, b.out...)
	b.mu.Unlock()
	b.wake()
	group := supervise.NewGroup(ctx)
	group.Go("writer", b.write)
	group.Go("heartbeat", b.beat)
	err = b.read()
	if err != io.EOF {
		b.p.Kill(err)
	}
	group.Stop(nil)
	if writing := group.Wait(); err == io.EOF {
		err = writing
	}
	return err
}

// read processes the child's messages until the child ends or breaks the protocol.
func (b *Bolt) read() error {
	in := NewReader(b.p)
	for {
		text, err := in.Next()
		if err != nil {
			return err
		}
		m, err := Parse(text)
		if err != nil {
			return err
		}
		if err := b.take(m); err != nil {
			return err
		}
	}
}

// write writes the queued messages to the child.
func (b *Bolt) write(ctx context.Context) error {
	var spare []byte
	for {
		select {
		case <-b.signal:
		case <-ctx.Done():
			return nil
		}
		b.mu.Lock()
		text := b.out
		b.out, b.waiting = spare[:0], 0
		close(b.written)
		b.written = make(chan struct{})
		b.mu.Unlock()
		if err := b.p.Write(ctx, text); err != nil {
			if ctx.Err() == nil {
				b.p.Kill(err)
			}
			return nil
		}
		spare = text
	}
}

func (b *Bolt) wake() {
	select {
	case b.signal <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// beat sends heartbeats. It kills a child that has sent nothing for Timeout.
func (b *Bolt) beat(ctx context.Context) error {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		b.mu.Lock()
		quiet := time.Since(b.seen)
		if b.begun {
			b.next++
			b.out = AppendHeartbeat(b.out, strconv.FormatUint(b.next, 10))
			b.waiting++
		}
		b.mu.Unlock()
		b.wake()
		if quiet > b.o.Timeout {
			b.p.Kill(fmt.Errorf("it gave no sign of life for %v", b.o.Timeout))
			return nil
		}
	}
}

// Ready waits until the child has answered the handshake.
func (b *Bolt) Ready(ctx context.Context) error {
	select {
	case <-b.ready:
		return nil
	case <-b.ended:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// maxOut is the number of queued bytes at which Give begins to wait.
const maxOut = 256 << 10

// Give sends one tuple to the child. It waits while the child has the maximum number of unanswered
// tuples (Pending), or while the unwritten messages to the child have at least maxOut bytes. If ctx
// ends first, Give returns its cause. If Give returns an error, the tuple was not sent.
func (b *Bolt) Give(ctx context.Context, t Tuple) error {
	select {
	case b.room <- struct{}{}:
	case <-b.ended:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		b.mu.Lock()
		if b.err != nil {
			b.mu.Unlock()
			return b.err
		}
		if len(b.out) < maxOut {
			b.next++
			id := strconv.FormatUint(b.next, 10)
			g := &given{id: ID(id), Tuple: t}
			b.open[g.id] = g
			b.oldest = append(b.oldest, g)
			b.out = AppendTuple(b.out, id, b.o.Component, b.o.Task, t.Values)
			b.mu.Unlock()
			b.wake()
			return nil
		}
		written := b.written
		b.mu.Unlock()
		select {
		case <-written:
		case <-b.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take processes one message of the child. It returns an error if the message breaks the protocol.
func (b *Bolt) take(m Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = time.Now()
	if !b.begun {
		if m.PID == nil {
			return fmt.Errorf("it has not answered the handshake with its process id, "+
				"but with command %q", m.Command)
		}
		b.begun = true
		close(b.ready)
		return nil
	}
	switch m.Command {
	case "sync":
	case "ack", "fail":
		return b.answerLocked(m)
	case "emit":
		return b.emitLocked(m)
	case "log":
		b.o.Log.Log(context.Background(), levelOf(m.Level), "a bolt logs",
			append([]any{"text", m.Msg}, b.o.Attrs...)...)
	case "error":
		b.o.Log.Error("a bolt reports an error", append([]any{"error", m.Msg}, b.o.Attrs...)...)
	case "metrics":
		// There is one counter for all metrics, because their names come from the child and are
		// unbounded.
		b.o.Count("bolt_metrics", 1)
	default:
		return fmt.Errorf("it has said command %q; "+
			"a bolt says emit, ack, fail, log, error, metrics and sync", m.Command)
	}
	return nil
}

// levelOf converts a log level of Storm to one of slog. In Storm, 0 to 4 mean trace, debug, info,
// warn and error. Trace becomes debug.
func levelOf(n *json.Number) slog.Level {
	if n == nil {
		return slog.LevelInfo
	}
	return map[string]slog.Level{"0": slog.LevelDebug, "1": slog.LevelDebug, "3": slog.LevelWarn,
		"4": slog.LevelError}[n.String()]
}

// RegisterCounters calls count with 0 for each counter of bolts, so that they are shown before the
// first event.
func RegisterCounters(count func(name string, n int64)) {
	for _, name := range []string{"bolt_metrics", "tuples_emitted", "tuples_emitted_of_nothing"} {
		count(name, 0)
	}
}

func (b *Bolt) answerLocked(m Message) error {
	g := b.open[m.ID]
	if g == nil {
		return fmt.Errorf("it has said %s of tuple %.40q, which it does not have", m.Command,
			string(m.ID))
	}
	delete(b.open, m.ID)
	<-b.room
	g.answered = true
	b.worked = true
	for len(b.oldest) > 0 && b.oldest[0].answered {
		b.oldest[0] = nil
		b.oldest = b.oldest[1:]
	}
	w := g.Of
	if m.Command == "ack" {
		w.Acked[g.Number] = true
	} else {
		w.Failed[g.Number] = true
	}
	if w.open--; w.open == 0 {
		close(w.Done)
	}
	return nil
}

func (b *Bolt) emitLocked(m Message) error {
	b.o.Count("tuples_emitted", 1)
	if m.NeedsTaskIDs() {
		if b.waiting++; b.waiting > maxWaiting {
			return errors.New("it emits and does not read the answers")
		}
		b.out = AppendTaskIDs(b.out)
		b.wake()
	}
	var of *given
	if len(m.Anchors) > 0 { // further anchors are settled by their own acks
		if of = b.open[m.Anchors[0]]; of == nil {
			return fmt.Errorf("it has emitted a tuple anchored to %.40q, which it does not have",
				string(m.Anchors[0]))
		}
	}
	if of == nil {
		if len(b.oldest) == 0 {
			b.o.Count("tuples_emitted_of_nothing", 1)
			return nil
		}
		of = b.oldest[0]
	}
	if !b.o.KeepEmits {
		return nil
	}
	of.emitted += emitSize
	for _, value := range m.Tuple {
		of.emitted += len(value)
	}
	if of.emitted > maxEmitted {
		return fmt.Errorf("its emits for tuple %q, without an ack, need more than %d MiB of "+
			"memory; emit less for one tuple", string(of.id), maxEmitted>>20)
	}
	of.Of.Emits = append(of.Of.Emits, Emit{m, of.Number})
	return nil
}

// End implements child.Session.
func (b *Bolt) End(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	// The oldest unanswered tuple is blamed for the death of the child. But no tuple is blamed if
	// the child has worked and then ended cleanly, because a child may serve only a limited number
	// of tuples.
	blamed := b.worked && child.EndedCleanly(err)
	for _, g := range b.oldest {
		if g.answered {
			continue
		}
		if !blamed {
			blamed = true
			g.Of.Blamed = g.Number
		}
		if g.Of.Err == nil {
			g.Of.Err = err
			close(g.Of.Done)
		}
	}
	b.open, b.oldest = nil, nil
	close(b.ended)
}

// Did implements child.Session.
func (b *Bolt) Did() (worked, busy bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.worked, len(b.open) > 0
}

// Kill kills the child with its process group.
func (b *Bolt) Kill(cause error) { b.p.Kill(cause) }

// Ended returns a channel. It is closed when the child has ended and the result of every Work is
// known.
func (b *Bolt) Ended() <-chan struct{} { return b.ended }

// Reader reads multilang messages.
type Reader struct{ in *bufio.Reader }

// NewReader returns a Reader for the standard output of a child.
func NewReader(in io.Reader) *Reader { return &Reader{bufio.NewReaderSize(in, 64<<10)} }

var errEndless = fmt.Errorf("it has written more than %d bytes without a line `end`", maxMessage)

// Next returns the JSON of the next message, which may have several lines. It returns io.EOF if the
// output ends before the end of a message.
func (r *Reader) Next() ([]byte, error) {
	var text []byte
	for {
		from := len(text)
		for {
			part, err := r.in.ReadSlice('\n')
			text = append(text, part...)
			if len(text) > maxMessage {
				return nil, errEndless
			}
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, io.EOF
			}
		}
		if line := text[from:]; string(line) == "end\n" || string(line) == "end\r\n" {
			return text[:from], nil
		}
	}
}
