package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

const (
	// frame is how many bytes of rows one message has. The server holds a message as a whole.
	frame     = 64<<10 - frameHead
	frameHead = 5
	// lookUp is how often a write that waits for the server looks whether it was given up.
	lookUp = 100 * time.Millisecond
	// hush is how long the server has to be silent until it counts as having said all.
	hush = 10 * time.Millisecond
)

// copyDone ends the rows.
var copyDone = []byte{'c', 0, 0, 0, 4}

// copyIn sends rows, which lie in memory, by COPY, and returns when the server has taken or refused
// them and nothing reads them any more. Where the connection is the system's own it takes them from
// where they are: the driver would copy them into messages first.
func (c *conn) copyIn(ctx context.Context, sql string, rows []byte) error {
	socket := c.PgConn().Conn()
	switch socket.(type) {
	case *net.TCPConn, *net.UnixConn:
	default: // encrypted, which copies anyway
		source := &lent{rest: rows, err: errEnd}
		_, err := c.PgConn().CopyFrom(ctx, source, sql)
		source.takeBack()
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
		err = c.hear(ctx, &said)
	}
	if err != nil {
		c.breakOff(ctx, socket)
		return errors.Join(said.refused, err)
	}
	return said.refused
}

// answer is what the server has said of a COPY so far.
type answer struct {
	refused error // what is sent behind it the server ignores
	over    bool  // it waits for the next command
}

// hear waits for one message of the server.
func (c *conn) hear(ctx context.Context, said *answer) error {
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

// listen hears what the server says until it is silent.
func (c *conn) listen(ctx context.Context, said *answer) error {
	for {
		short, cancel := context.WithTimeout(ctx, hush)
		err := c.hear(short, said)
		cancel()
		if err != nil && errors.Is(err, context.DeadlineExceeded) {
			return nil // or ctx is over, which the caller sees
		}
		if err != nil {
			return err
		}
	}
}

// sendFrames writes rows as messages, and the end of them. Where the server takes nothing it may be
// waiting for its own words to be read: a trigger that warns of each row says more than a socket
// holds.
func (c *conn) sendFrames(ctx context.Context, socket net.Conn, rows []byte, said *answer) error {
	c.heads, c.parts = c.heads[:0], c.parts[:0]
	for at := 0; at < len(rows); at += frame {
		c.heads = binary.BigEndian.AppendUint32(append(c.heads, 'd'), uint32(min(frame, len(rows)-at)+4))
	}
	for at, head := 0, c.heads; at < len(rows); at, head = at+frame, head[frameHead:] {
		c.parts = append(c.parts, head[:frameHead], rows[at:min(at+frame, len(rows))])
	}
	c.parts = append(c.parts, copyDone)
	for rest := net.Buffers(c.parts); len(rest) > 0; {
		if err := socket.SetWriteDeadline(time.Now().Add(lookUp)); err != nil {
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

// breakOff closes a connection of which nobody knows what the server has read: it undoes the
// transaction when it finds it closed. Where it was given up, ctx is over, the server is told so:
// it may wait for a lock, and would look for the client only after that.
func (c *conn) breakOff(ctx context.Context, socket net.Conn) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	if ctx.Err() != nil {
		_ = c.PgConn().CancelRequest(bounded) // closing has to do where it cannot be told
	}
	_ = socket.Close()
	_ = c.Conn.Close(bounded) // it is given up because it failed
}
