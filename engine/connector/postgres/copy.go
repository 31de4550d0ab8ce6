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
)

// copyDone ends the rows.
var copyDone = []byte{'c', 0, 0, 0, 4}

// copyIn sends rows, which lie in memory, by COPY, and returns when the server has taken or refused them and nothing reads them any
// more. Where the connection is the system's own it takes them from where they are: the driver would copy them into messages first.
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
	err := front.Flush()
	if err == nil {
		err = c.sendFrames(ctx, socket, rows)
	}
	if err != nil {
		c.breakOff(ctx, socket)
		return err
	}
	var refused error
	for {
		m, err := c.PgConn().ReceiveMessage(ctx)
		if err != nil {
			c.breakOff(ctx, socket)
			return errors.Join(refused, err)
		}
		switch m := m.(type) {
		case *pgproto3.ErrorResponse: // what was sent behind it the server ignores
			refused = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			return refused
		}
	}
}

// sendFrames writes rows as messages, and the end of them.
func (c *conn) sendFrames(ctx context.Context, socket net.Conn, rows []byte) error {
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
		_, err := rest.WriteTo(socket)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	clear(c.parts)
	return socket.SetWriteDeadline(time.Time{})
}

// breakOff closes a connection of which nobody knows what the server has read: it undoes the transaction when it finds it closed. Where
// it was given up, ctx is over, the server is told so: it may wait for a lock, and would look for the client only after that.
func (c *conn) breakOff(ctx context.Context, socket net.Conn) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	if ctx.Err() != nil {
		_ = c.PgConn().CancelRequest(bounded) // closing has to do where it cannot be told
	}
	_ = socket.Close()
	_ = c.Conn.Close(bounded) // it is given up because it failed
}
