package connectortest

import (
	"net"
	"sync"
	"testing"
)

// Link is a TCP proxy between a client and a server on loopback. A test can cut or stall its
// connections. It is safe for concurrent use.
type Link struct {
	listener net.Listener
	server   string
	running  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	state   linkState
	changed chan struct{} // closed and replaced when state changes
	conns   map[net.Conn]struct{}
}

// linkState is the state of a Link. All transitions are possible.
type linkState uint8

const (
	linkOpen    linkState = iota
	linkCut               // connections are closed, new ones at once
	linkStalled           // connections stay open, but no data passes
)

// NewLink returns an open link to the address of a server. The server may be started later. The
// link is closed when the test ends.
func NewLink(t testing.TB, server string) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	link := &Link{listener: l, server: server, changed: make(chan struct{}),
		conns: make(map[net.Conn]struct{})}
	link.running.Go(link.accept)
	t.Cleanup(func() {
		l.Close()
		link.Cut()
		link.running.Wait()
	})
	return link
}

// Address returns the address to connect to.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Cut closes all connections, and each new one at once, until Heal.
func (l *Link) Cut() {
	l.set(linkCut)
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// Stall stops all data until Heal. Connections stay open, and new ones are accepted.
func (l *Link) Stall() { l.set(linkStalled) }

// Heal ends a Cut or Stall.
func (l *Link) Heal() { l.set(linkOpen) }

func (l *Link) set(s linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	close(l.changed)
	l.changed = make(chan struct{})
}

// pass waits while the link is stalled. It returns false if the link is cut.
func (l *Link) pass() bool {
	for {
		l.mu.Lock()
		state, changed := l.state, l.changed
		l.mu.Unlock()
		if state != linkStalled {
			return state == linkOpen
		}
		<-changed
	}
}

// add registers a connection. It returns false if the link is cut.
func (l *Link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c] = struct{}{}
	return l.state != linkCut
}

func (l *Link) remove(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	c.Close()
}

func (l *Link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.forward(client) })
	}
}

func (l *Link) forward(client net.Conn) {
	defer l.remove(client)
	if !l.add(client) || !l.pass() {
		return
	}
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer l.remove(server)
	if !l.add(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client) })
	both.Go(func() { l.copy(client, server) })
	both.Wait()
}

// copy forwards data in one direction. At its end, it closes both connections.
func (l *Link) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && l.pass() {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
