package httpsink

import (
	"bytes"
	"io"
	"net"
)

// firstWrite is the maximum size in bytes of the first write of a request, which contains its
// header and the beginning of its body.
const firstWrite = 16 << 10

var (
	headerEnd = []byte("\r\n\r\n")
	noBody    = []byte("\r\nContent-Length: 0\r\n")
)

// conn is a connection for net/http that writes a request with fewer system calls and copies. It
// writes the header together with the beginning of the body, and the rest of the body directly from
// the memory of the batch. Without conn, net/http would write the header first, so that the
// receiver would wake up twice. It would also copy the body, 32 KiB at a time. conn changes nothing
// for connections with TLS.
//
// Only one goroutine at a time may write to a conn.
type conn struct {
	net.Conn
	header []byte // a request's header that waits for its body
}

// Write implements io.Writer. If p is the whole header of a request with a body, and is smaller
// than 8 KiB, Write only stores it. The next call of ReadFrom sends it together with the body.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) < firstWrite/2 && isHeader(p) {
		c.header = append(c.header[:0], p...)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// isHeader reports whether p is the whole header of one of the sink's requests with a body. It is
// false for TLS records.
func isHeader(p []byte) bool {
	return (bytes.HasPrefix(p, []byte("POST ")) || bytes.HasPrefix(p, []byte("PUT ")) ||
		bytes.HasPrefix(p, []byte("PATCH "))) &&
		bytes.HasSuffix(p, headerEnd) && !bytes.Contains(p, noBody)
}

// ReadFrom implements io.ReaderFrom.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	l, ok := r.(*io.LimitedReader)
	if !ok {
		return c.copy(r)
	}
	b, ok := l.R.(*body)
	if !ok {
		return c.copy(r)
	}
	data, err := b.beginWrite(c.Conn, l.N)
	if err != nil {
		return 0, err
	}
	n, err := c.writeBody(data)
	b.endWrite(n)
	l.N -= int64(n)
	return int64(n), err
}

// writeBody writes the stored header, if there is one, and then data. It returns the number of
// bytes of data that it has written.
func (c *conn) writeBody(data []byte) (int, error) {
	first := 0
	if header := len(c.header); header > 0 {
		first = min(len(data), firstWrite-header)
		c.header = append(c.header, data[:first]...)
		n, err := c.Conn.Write(c.header)
		c.header = c.header[:0]
		if err != nil {
			return max(0, n-header), err
		}
		if first == len(data) {
			return first, nil
		}
	}
	n, err := c.Conn.Write(data[first:])
	return first + n, err
}

// copy writes the data of r to the connection. ReadFrom calls it for a reader that is not a *body.
func (c *conn) copy(r io.Reader) (int64, error) {
	if len(c.header) > 0 {
		_, err := c.Conn.Write(c.header)
		if c.header = c.header[:0]; err != nil {
			return 0, err
		}
	}
	return io.Copy(c.Conn, r)
}
