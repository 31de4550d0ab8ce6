package http

import (
	"bytes"
	"io"
	"net"
)

// conn is a connection that writes a request from where it stands, in one call of the kernel and so in as few packets as it takes.
// net/http would send the head by itself, which wakes the receiver for nothing, and copy the body in pieces of 32 KiB.
type conn struct {
	net.Conn

	// start is what the head of every request begins with, where requests go over the connection in the clear, each with a body. Then
	// a head waits for its body, which net/http writes next. nil: no head waits.
	start []byte
	head  []byte // that waits; its memory is used again. net/http has one goroutine that writes
	two   [2][]byte
	parts net.Buffers // of two
}

var headEnd = []byte("\r\n\r\n")

// maxHead is how many bytes of a head may wait for the body; a longer one is written as net/http gives it.
const maxHead = 4 << 10

// Write implements io.Writer: a whole head is kept for its body.
func (c *conn) Write(p []byte) (int, error) {
	whole := c.start != nil && len(c.head) == 0 && bytes.HasPrefix(p, c.start) && bytes.HasSuffix(p, headEnd)
	if whole && len(p) <= maxHead {
		c.head = append(c.head, p...)
		return len(p), nil
	}
	if err := c.behead(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// behead writes the head that waits, if any.
func (c *conn) behead() error {
	if len(c.head) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.head)
	c.head = c.head[:0]
	return err
}

// ReadFrom implements io.ReaderFrom.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	l, ok := r.(*io.LimitedReader)
	if !ok {
		return c.copied(r)
	}
	b, ok := l.R.(*body)
	if !ok {
		return c.copied(r)
	}
	data, err := b.of.lend(b, c.Conn, l.N)
	if err != nil {
		return 0, err
	}
	n, err := c.writeBoth(data)
	b.of.giveBack(b, c.Conn, n)
	l.N -= int64(n)
	return int64(n), err
}

func (c *conn) copied(r io.Reader) (int64, error) {
	if err := c.behead(); err != nil {
		return 0, err
	}
	return io.Copy(c.Conn, r)
}

// writeBoth writes the head that waits and data, and returns how much of data was written.
func (c *conn) writeBoth(data []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Write(data)
	}
	head := len(c.head)
	c.two = [2][]byte{c.head, data}
	c.parts = c.two[:]
	published(c.Conn)
	n, err := c.parts.WriteTo(c.Conn)
	c.head, c.two = c.head[:0], [2][]byte{} // data is the batch's
	return max(0, int(n)-head), err
}
