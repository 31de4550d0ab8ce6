package listen

import (
	"container/list"
	"net"
	"sync"
)

// Listener limits the number of open connections of another listener. When the limit is reached and
// a new connection arrives, it closes the connection that has been idle for the longest time, or
// calls its function [Conn.OnReplace]. If no connection is idle, Accept waits.
type Listener struct {
	net.Listener
	closed chan struct{}
	once   sync.Once
	room   chan struct{} // one token for each open connection
	idled  chan struct{} // receives a value when a connection becomes idle

	mu      sync.Mutex // guards the fields below
	idle    *list.List // idle *Conn, the longest idle first
	leaving *Conn      // its function OnReplace was called, and it is neither closed nor in use yet
}

// Limit returns a Listener with at most most connections.
func Limit(l net.Listener, most int) *Listener {
	return &Listener{
		Listener: l, room: make(chan struct{}, most), idled: make(chan struct{}, 1),
		closed: make(chan struct{}), idle: list.New(),
	}
}

// Conn is a connection of a [Listener].
type Conn struct {
	net.Conn
	l      *Listener
	once   sync.Once
	leave  func()        // see OnReplace
	at     *list.Element // its element in Listener.idle; guarded by the listener's mu
	closed bool          // Close was called; guarded by the listener's mu
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		select {
		case l.room <- struct{}{}:
			return &Conn{Conn: c, l: l}, nil
		default:
		}
		l.closeIdle()
		select {
		case l.room <- struct{}{}:
			return &Conn{Conn: c, l: l}, nil
		case <-l.idled:
		case <-l.closed:
			_ = c.Close() // nothing was read from it
			return nil, net.ErrClosed
		}
	}
}

// closeIdle closes the connection that has been idle longest. It does nothing while a connection is
// leaving.
func (l *Listener) closeIdle() {
	l.mu.Lock()
	front := l.idle.Front()
	if front == nil || l.leaving != nil {
		l.mu.Unlock()
		return
	}
	c := front.Value.(*Conn)
	l.idle.Remove(front)
	c.at = nil
	if c.leave != nil {
		l.leaving = c
	}
	l.mu.Unlock()
	if c.leave != nil {
		c.leave()
		return
	}
	_ = c.Close() // nothing is lost: it was idle
}

// OnReplace sets a function that is called, instead of Close, when a new connection needs the place
// of this idle one. The function must not block. Afterwards the owner must soon close the
// connection. If data has arrived, the owner keeps it by a call of SetIdle instead. Call OnReplace
// before SetIdle.
func (c *Conn) OnReplace(leave func()) { c.leave = leave }

// SetIdle sets whether the connection is idle. An idle connection may be closed to accept another
// one. After Close, SetIdle has no effect.
func (c *Conn) SetIdle(idle bool) {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	stays := l.leaving == c
	if stays {
		l.leaving = nil
	}
	switch {
	case idle && c.at == nil && !c.closed:
		c.at = l.idle.PushBack(c)
		stays = true
	case !idle && c.at != nil:
		l.idle.Remove(c.at)
		c.at = nil
	}
	if stays { // Accept may close an idle connection now
		select {
		case l.idled <- struct{}{}:
		default:
		}
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.l.mu.Lock()
		c.closed = true
		c.l.mu.Unlock()
		c.SetIdle(false) // after closed is set, so that no other call makes it idle again
		<-c.l.room
	})
	return c.Conn.Close()
}

// Close implements net.Listener. Connections that were accepted before stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
