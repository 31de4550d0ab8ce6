package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// publisher publishes messages to streams and receives the responses. Unlike the library's
// publisher, it keeps no timer, no channel and no map entry for each message: the reply subject
// of a response identifies the message. Example: the reply subject _INBOX.x.7.12 belongs to
// message 12 of batch 7. A publisher is safe for concurrent use.
type publisher struct {
	conn  *natsgo.Conn
	inbox string // prefix of all reply subjects
	plain []byte // see decode; belongs to the subscription's goroutine

	mu   sync.Mutex // guards the fields below, and those of responses
	last uint64     // number of the last batch
	open map[uint64]*responses
}

// newPublisher subscribes to the responses. conn must have a handler of disconnections, which
// newPublisher wraps: a disconnection fails all messages that have no response yet.
func newPublisher(conn *natsgo.Conn) (*publisher, error) {
	p := &publisher{conn: conn, inbox: conn.NewInbox() + ".", open: make(map[uint64]*responses)}
	sub, err := conn.Subscribe(p.inbox+">", p.receive)
	if err != nil {
		return nil, err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil { // maxUnacked bounds the responses
		return nil, err
	}
	report := conn.DisconnectErrHandler()
	conn.SetDisconnectErrHandler(func(conn *natsgo.Conn, err error) {
		p.disconnect()
		report(conn, err)
	})
	return p, nil
}

// disconnect fails all messages without a response, because the connection is lost.
func (p *publisher) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.open {
		r.failAllLocked(natsgo.ErrDisconnected)
	}
}

// errAwaited is the outcome of a message until its outcome is known.
var errAwaited = errors.New("no response yet")

// responses collects the responses to the messages of one batch.
type responses struct {
	p      *publisher
	number uint64
	reply  []byte        // prefix of its reply subjects
	done   chan struct{} // closed when no response is awaited

	outcomes   []error // by message; nil: stored
	awaited    int
	duplicates int64

	abandoned time.Time
	free      func() // called when no response is awaited; nil before abandon
}

// begin prepares for the responses to a batch of messages, one for each element of outcomes, which
// must not be empty. When the response to message k arrives, its outcome is stored in outcomes[k],
// but not after end was called.
func (p *publisher) begin(outcomes []error) *responses {
	r := &responses{p: p, outcomes: outcomes, awaited: len(outcomes), done: make(chan struct{})}
	for k := range outcomes {
		outcomes[k] = errAwaited
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	r.number = p.last
	r.reply = append(strconv.AppendUint([]byte(p.inbox), r.number, 10), '.')
	p.open[r.number] = r
	return r
}

// end ends the wait for responses. A response that comes later no longer changes the outcomes that
// were passed to begin. For a message without a response, the outcome remains errAwaited.
func (r *responses) end() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	delete(r.p.open, r.number)
}

// abandon is called instead of end if the caller does not use the outcomes any more. It calls the
// function free as soon as no response can change the outcomes. That is when all responses have
// arrived, the connection is lost, or expire ends the wait for them.
func (r *responses) abandon(free func()) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.abandoned = time.Now()
	r.free = func() {
		delete(r.p.open, r.number)
		free()
	}
	if r.awaited == 0 {
		r.free()
	}
}

// expire stops the wait for responses to batches for which abandon was called before the given
// time.
func (p *publisher) expire(before time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.open {
		if r.free != nil && r.abandoned.Before(before) {
			r.failAllLocked(jetstream.ErrAsyncPublishTimeout)
		}
	}
}

// send publishes m as message k of the batch, and does not wait for the response. The caller may
// reuse m afterwards.
func (r *responses) send(k int, m *natsgo.Msg) {
	m.Reply = string(strconv.AppendInt(r.reply, int64(k), 10))
	if err := r.p.conn.PublishMsg(m); err != nil {
		r.fail(k, err)
	}
}

// fail sets the outcome of message k to err, unless the outcome is already known.
func (r *responses) fail(k int, err error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.recordLocked(k, err)
}

// failAll sets the outcome to err for each message without a known outcome.
func (r *responses) failAll(err error) {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.failAllLocked(err)
}

func (r *responses) failAllLocked(err error) {
	for k := range r.outcomes {
		r.recordLocked(k, err)
	}
}

// recordLocked sets the outcome of message k, unless the outcome is already known. It reports
// whether it has set the outcome. The caller holds the mu of the publisher.
func (r *responses) recordLocked(k int, err error) bool {
	if r.outcomes[k] != errAwaited {
		return false
	}
	r.outcomes[k] = err
	if r.awaited--; r.awaited == 0 {
		close(r.done)
		if r.free != nil {
			r.free()
		}
	}
	return true
}

// receive handles the response m: it sets the outcome of the message to which m responds.
func (p *publisher) receive(m *natsgo.Msg) {
	batch, message, _ := strings.Cut(m.Subject[len(p.inbox):], ".")
	number, err := strconv.ParseUint(batch, 10, 64)
	if err != nil {
		return
	}
	k, err := strconv.Atoi(message)
	if err != nil || k < 0 {
		return
	}
	duplicate, outcome := p.decode(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.open[number]
	if r != nil && k < len(r.outcomes) && r.recordLocked(k, outcome) && duplicate {
		r.duplicates++
	}
}

// noResponders is the status of the response to a message that no stream takes.
const noResponders = "503"

// decode returns the outcome of a message according to its response. Decoding JSON is slow, and the
// server's acknowledgements differ only in the sequence at their end. So decode keeps the part
// before the sequence in p.plain. Example: after {"stream":"out","seq":17}, p.plain is
// {"stream":"out","seq": and a response that consists of p.plain, digits and a brace needs no
// decoding.
func (p *publisher) decode(m *natsgo.Msg) (duplicate bool, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
		return false, jetstream.ErrNoStreamResponse
	}
	prefix, isPlain := cutSequence(m.Data)
	if isPlain && p.plain != nil && bytes.Equal(prefix, p.plain) {
		return false, nil
	}
	var response struct {
		Error *jetstream.APIError `json:"error"`
		jetstream.PubAck
	}
	switch err := json.Unmarshal(m.Data, &response); {
	case err != nil:
		return false, jetstream.ErrInvalidJSAck
	case response.Error != nil:
		return false, response.Error
	case response.Stream == "":
		return false, jetstream.ErrInvalidJSAck
	}
	if isPlain && !response.Duplicate {
		p.plain = bytes.Clone(prefix)
	}
	return response.Duplicate, nil
}

// cutSequence returns the part of an acknowledgement before the sequence at its end.
func cutSequence(ack []byte) (before []byte, ok bool) {
	digits, ok := bytes.CutSuffix(ack, []byte{'}'})
	if !ok {
		return nil, false
	}
	before = bytes.TrimRight(digits, "0123456789")
	return before, len(before) < len(digits) && bytes.HasSuffix(before, []byte(`"seq":`))
}
