package otlp

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/stats"

	"github.com/penstock-io/penstock/engine/kit/listen"
)

// connections counts the running requests of each connection. The listener can then close a
// connection without requests to make room for a new one. connections is a listener and a
// stats.Handler of the gRPC server. It is safe for concurrent use.
type connections struct {
	*listen.Listener

	mu     sync.Mutex              // guards byPeer and the counts of requests
	byPeer map[string]*countedConn // accepted connections for which TagConn was not called yet
}

// countedConn is a connection with its number of running requests.
type countedConn struct {
	conn     *listen.Conn
	requests int // number of running requests; guarded by the mu of connections
}

func newConnections(l *listen.Listener) *connections {
	return &connections{Listener: l, byPeer: make(map[string]*countedConn)}
}

// Accept implements net.Listener. A new connection is idle, that is, it has no running requests.
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := accepted.(*listen.Conn)
	c.mu.Lock()
	c.byPeer[conn.RemoteAddr().String()] = &countedConn{conn: conn}
	c.mu.Unlock()
	conn.SetIdle(true)
	return &acceptedConn{Conn: conn, connections: c}, nil
}

// acceptedConn is a connection that may be closed before gRPC has called TagConn for it. In this
// case, Close removes it from connections.byPeer.
type acceptedConn struct {
	*listen.Conn
	connections *connections
}

// Close implements net.Conn.
func (f *acceptedConn) Close() error {
	c := f.connections
	c.mu.Lock()
	peer := f.RemoteAddr().String()
	if at := c.byPeer[peer]; at != nil && at.conn == f.Conn {
		delete(c.byPeer, peer)
	}
	c.mu.Unlock()
	return f.Conn.Close()
}

type connectionKey struct{}

// TagConn implements stats.Handler. It stores the connection in its context, for HandleRPC.
func (c *connections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	peer := info.RemoteAddr.String()
	at := c.byPeer[peer]
	delete(c.byPeer, peer)
	return context.WithValue(ctx, connectionKey{}, at)
}

// HandleRPC implements stats.Handler. It counts the beginning and the end of each request.
func (c *connections) HandleRPC(ctx context.Context, event stats.RPCStats) {
	at, _ := ctx.Value(connectionKey{}).(*countedConn)
	if at == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch event.(type) {
	case *stats.Begin:
		at.requests++
	case *stats.End:
		at.requests--
	default:
		return
	}
	at.conn.SetIdle(at.requests == 0)
}

// TagRPC implements stats.Handler. It does nothing.
func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler. It does nothing.
func (*connections) HandleConn(context.Context, stats.ConnStats) {}
