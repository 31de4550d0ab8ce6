package http

import (
	"io"
	"net"
)

// conn is a connection of net/http that writes a body from where it stands, in one call of the kernel. net/http would copy it in pieces of
// 32 KiB. Behind TLS nothing changes.
type conn struct{ net.Conn }

// ReadFrom implements io.ReaderFrom.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	l, ok := r.(*io.LimitedReader)
	if !ok {
		return io.Copy(c.Conn, r)
	}
	b, ok := l.R.(*body)
	if !ok {
		return io.Copy(c.Conn, r)
	}
	data, err := b.of.lend(b, c.Conn, l.N)
	if err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(data)
	b.of.giveBack(b, c.Conn, n)
	l.N -= int64(n)
	return int64(n), err
}
