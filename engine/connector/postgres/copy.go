package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// frame is the maximum number of row bytes in a protocol message. It is small because the server
	// buffers a whole message before it parses the rows.
	frame     = 64<<10 - frameHead
	frameHead = 5
	// checkInterval is the interval at which a blocked write checks its context.
	checkInterval = 100 * time.Millisecond
	// silence is the time for which listen waits for the next message of the server.
	silence = 10 * time.Millisecond
)

// copyDone is the protocol message CopyDone, which tells the server that no more rows follow.
var copyDone = []byte{'c', 0, 0, 0, 4}

// copyIn sends rows with COPY, and waits until the server has accepted or refused them. After it
// has returned, no goroutine reads rows any more. On a socket without TLS, it writes the rows
// directly from their memory. The driver would first copy them into messages.
func (c *conn) copyIn(ctx context.Context, sql string, rows []byte) error {
	socket := c.PgConn().Conn()
	switch socket.(type) {
	case *net.TCPConn, *net.UnixConn:
	default: // encrypted, which requires a copy anyway
		source := &revocableReader{rest: rows, err: io.EOF}
		_, err := c.PgConn().CopyFrom(ctx, source, sql)
		source.revoke()
		if err != nil && ctx.Err() != nil {
			c.breakOff(ctx, socket)
		}
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	front := c.PgConn().Frontend()
	front.SendQuery(&pgproto3.Query{String: sql})
	var said answer
	err := front.Flush()
	if err == nil {
		err = c.sendFrames(ctx, socket, rows, &said)
	}
	for err == nil && !said.over {
		err = c.receive(ctx, &said)
	}
	if err != nil {
		c.breakOff(ctx, socket)
		return errors.Join(said.refused, err)
	}
	return said.refused
}

// answer is the server's response to a COPY so far.
type answer struct {
	refused error // the server ignores further rows
	over    bool  // the server is ready for the next command
}

// receive receives one message of the server. If the message is an error, or means that the server
// is ready for the next command, receive stores this in said.
func (c *conn) receive(ctx context.Context, said *answer) error {
	m, err := c.PgConn().ReceiveMessage(ctx)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *pgproto3.ErrorResponse:
		said.refused = pgconn.ErrorResponseToPgError(m)
	case *pgproto3.ReadyForQuery:
		said.over = true
	}
	return nil
}

// listen receives messages until none has arrived for the time silence.
func (c *conn) listen(ctx context.Context, said *answer) error {
	for {
		short, cancel := context.WithTimeout(ctx, silence)
		err := c.receive(short, said)
		cancel()
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			return nil // if ctx is done, the caller notices
		}
		if err != nil {
			return err
		}
	}
}

// sendFrames writes rows as messages, followed by the end of the rows. If the server stops reading,
// this may be because it cannot send: for example, a trigger that warns for each row fills the
// socket buffers with warnings. Therefore sendFrames reads messages of the server while it cannot
// write.
func (c *conn) sendFrames(ctx context.Context, socket net.Conn, rows []byte, said *answer) error {
	c.heads, c.parts = c.heads[:0], c.parts[:0]
	for at := 0; at < len(rows); at += frame {
		c.heads = binary.BigEndian.AppendUint32(append(c.heads, 'd'),
			uint32(min(frame, len(rows)-at)+4))
	}
	for at, head := 0, c.heads; at < len(rows); at, head = at+frame, head[frameHead:] {
		c.parts = append(c.parts, head[:frameHead], rows[at:min(at+frame, len(rows))])
	}
	c.parts = append(c.parts, copyDone)
	for rest := net.Buffers(c.parts); len(rest) > 0; {
		if err := socket.SetWriteDeadline(time.Now().Add(checkInterval)); err != nil {
			return err
		}
		n, err := rest.WriteTo(socket)
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case n == 0:
			if err := c.listen(ctx, said); err != nil {
				return err
			}
		}
	}
	clear(c.parts)
	return socket.SetWriteDeadline(time.Time{})
}

// breakOff closes a connection in an unknown protocol state. The server then rolls back the
// transaction. A server that waits for a lock notices a closed connection only after the wait. So
// if ctx is done, breakOff also sends a cancel request.
func (c *conn) breakOff(ctx context.Context, socket net.Conn) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	if ctx.Err() != nil {
		_ = c.PgConn().CancelRequest(bounded) // if it fails, closing the connection must suffice
	}
	_ = socket.Close()
	_ = c.Conn.Close(bounded) // the connection has failed already
}
