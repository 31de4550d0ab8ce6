package multilang_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine/kit/child/multilang"
)

// conversation is a bolt connected to pipes whose other ends the test holds.
type conversation struct {
	t      *testing.T
	bolt   *multilang.Bolt
	reader *multilang.Reader
	out    *io.PipeWriter // the child's standard output
	in     *io.PipeReader // the child's standard input
	theirs pipes
	served chan error
	once   sync.Once
}

// pipes is the Process of the bolt under test.
type pipes struct {
	out *io.PipeReader
	in  *io.PipeWriter

	mu     sync.Mutex
	killed error
}

func (p *pipes) Read(text []byte) (int, error) { return p.out.Read(text) }

func (p *pipes) Write(_ context.Context, text []byte) error {
	_, err := p.in.Write(text)
	return err
}

func (p *pipes) Kill(cause error) {
	p.mu.Lock()
	if p.killed == nil {
		p.killed = cause
	}
	p.mu.Unlock()
	p.out.CloseWithError(io.EOF)
	p.in.CloseWithError(errors.New("killed"))
}

// newConversation starts a bolt with new pipes. The test plays the child.
func newConversation(t *testing.T, o multilang.Options) *conversation {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Count == nil {
		o.Count = func(string, int64) {}
	}
	c := &conversation{t: t, served: make(chan error, 1)}
	c.theirs.out, c.out = io.Pipe()
	c.in, c.theirs.in = io.Pipe()
	c.bolt = multilang.NewBolt(&c.theirs, o)
	c.reader = multilang.NewReader(c.in)
	go func() {
		err := c.bolt.Serve(t.Context())
		c.bolt.End(errors.Join(errors.New("the child is gone"), err))
		c.served <- err
	}()
	t.Cleanup(c.end)
	return c
}

// heard returns the next message that the bolt sends to the child.
func (c *conversation) heard() string {
	c.t.Helper()
	text, err := c.reader.Next()
	if err != nil {
		c.t.Fatalf("the child hears %v", err)
	}
	return strings.TrimSpace(string(text))
}

// say sends a message as the child and waits until the bolt has processed it.
func (c *conversation) say(message string) {
	c.t.Helper()
	_, _ = io.WriteString(c.out, message+"\nend\n") // a killed bolt does not read
	synctest.Wait()
}

// end ends the child.
func (c *conversation) end() {
	c.once.Do(func() {
		_ = c.out.Close()
		_ = c.in.Close()
		<-c.served
	})
}

func (c *conversation) killed() error {
	c.theirs.mu.Lock()
	defer c.theirs.mu.Unlock()
	return c.theirs.killed
}

// greet answers the handshake.
func (c *conversation) greet() {
	c.t.Helper()
	if hello := c.heard(); !strings.HasPrefix(hello, `{"conf":`) {
		c.t.Fatalf("the child was greeted with %q", hello)
	}
	c.say(`{"pid": 1}`)
}
