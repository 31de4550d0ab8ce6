package nats

import (
	"errors"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestDecode checks the outcomes of responses. Their order matters: decode remembers the text of an
// acknowledgement, and must not mistake a different response for an acknowledgement.
func TestDecode(t *testing.T) {
	t.Parallel()
	var p publisher
	unavailable := natsgo.Header{"Status": []string{"503"}}
	for _, test := range []struct {
		text      string
		header    natsgo.Header
		duplicate bool
		want      error
	}{
		{text: `{"stream":"out","seq":8,"duplicate":true}`, duplicate: true},
		{text: `{"duplicate":true,"stream":"out","seq":9}`, duplicate: true},
		{text: `{"duplicate":true,"stream":"out","seq":10}`, duplicate: true},
		{text: `{"stream":"out","seq":17}`},
		{text: `{"stream":"out","seq":18}`},
		{text: `{"stream":"out","seq":}`, want: jetstream.ErrInvalidJSAck},
		{text: `{"stream":"out","seq":1a}`, want: jetstream.ErrInvalidJSAck},
		{text: `{"stream":"out","seq":18,"duplicate":true}`, duplicate: true},
		{text: `{"stream":"","seq":18}`, want: jetstream.ErrInvalidJSAck},
		{text: `{"stream":"other","seq":1}`},
		{text: `{"stream":"out","seq":20}`},
		{text: `{"stream":"out","domain":"hub","seq":21}`},
		{text: `{"error":{"code":503,"err_code":10077,"description":"full"},"stream":"out","seq":0}`,
			want: &jetstream.APIError{ErrorCode: 10077}},
		{text: `{"error":{"code":503,"err_code":10077,"description":"full"},"seq":0}`,
			want: &jetstream.APIError{ErrorCode: 10077}},
		{text: ``, header: unavailable, want: jetstream.ErrNoStreamResponse},
		{text: ``, want: jetstream.ErrInvalidJSAck},
		{text: `{"stream":"out","seq":22}`},
	} {
		duplicate, err := p.decode(&natsgo.Msg{Data: []byte(test.text), Header: test.header})
		if duplicate != test.duplicate || !errors.Is(err, test.want) {
			t.Errorf("%s: %v, %v, want %v, %v", test.text, duplicate, err, test.duplicate,
				test.want)
		}
	}
}

// TestResponses checks that each message keeps its first outcome, and that responses to other
// batches, other messages and ended batches are ignored.
func TestResponses(t *testing.T) {
	t.Parallel()
	p := publisher{inbox: "_INBOX.x.", open: make(map[uint64]*responses)}
	receive := func(subject, text string) {
		p.receive(&natsgo.Msg{Subject: p.inbox + subject, Data: []byte(text)})
	}
	const stored, again = `{"stream":"out","seq":1}`, `{"stream":"out","seq":1,"duplicate":true}`
	outcomes := make([]error, 4)
	r := p.begin(outcomes)
	for _, subject := range []string{"1.4", "1.-1", "1.x", "1", "2.0", "x.0", ".", "1."} {
		receive(subject, stored)
	}
	for k, err := range outcomes {
		if err != errAwaited {
			t.Errorf("message %d has the outcome %v", k, err)
		}
	}
	receive("1.2", again)
	receive("1.2", again)
	receive("1.0", stored)
	refused := errors.New("refused")
	r.fail(0, refused)
	r.fail(3, refused)
	select {
	case <-r.done:
		t.Error("the batch is done before the outcome of message 1 is known")
	default:
	}
	r.failAll(natsgo.ErrDisconnected)
	<-r.done
	r.end()
	receive("1.1", stored)
	for k, want := range []error{nil, natsgo.ErrDisconnected, nil, refused} {
		if outcomes[k] != want {
			t.Errorf("message %d has the outcome %v, want %v", k, outcomes[k], want)
		}
	}
	if r.duplicates != 1 {
		t.Errorf("%d duplicates are counted, want 1", r.duplicates)
	}
}

// TestAbandonedResponses checks that an abandoned batch is freed once: by its last response, by a
// disconnection, or when it expires.
func TestAbandonedResponses(t *testing.T) {
	t.Parallel()
	const stored = `{"stream":"out","seq":1}`
	for name, finish := range map[string]func(p *publisher){
		"response": func(p *publisher) {
			p.receive(&natsgo.Msg{Subject: p.inbox + "1.1", Data: []byte(stored)})
		},
		"disconnection": (*publisher).disconnect,
		"expiry":        func(p *publisher) { p.expire(time.Now().Add(time.Hour)) },
	} {
		p := publisher{inbox: "_INBOX.x.", open: make(map[uint64]*responses)}
		freed := 0
		p.begin(make([]error, 2)).abandon(func() { freed++ })
		p.receive(&natsgo.Msg{Subject: p.inbox + "1.0", Data: []byte(stored)})
		p.expire(time.Now().Add(-time.Hour))
		if freed != 0 {
			t.Errorf("%s: the batch is freed before its last response", name)
		}
		finish(&p)
		finish(&p)
		if freed != 1 || len(p.open) != 0 {
			t.Errorf("%s: the batch is freed %d times, and %d are open", name, freed, len(p.open))
		}
	}
	p := publisher{inbox: "_INBOX.x.", open: make(map[uint64]*responses)}
	waiting := p.begin(make([]error, 1))
	p.expire(time.Now().Add(time.Hour))
	select {
	case <-waiting.done:
		t.Error("a batch that was not abandoned has expired")
	default:
	}
}
