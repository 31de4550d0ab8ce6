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

	mu     sync.Mutex                // guards byPeer and all requests counts
	byPeer map[string]*countedStream // accepted connections for which TagConn was not called yet
}

// countedStream is a connection with its number of running requests.
type countedStream struct {
	conn     *listen.Conn
	requests int // number of running requests; guarded by the mu of connections
}

func newConnections(l *listen.Listener) *connections {
	return &connections{Listener: l, byPeer: make(map[string]*countedStream)}
}

// Accept implements net.Listener. A new connection is idle, that is, it has no running requests.
func (c *connections) Accept() (net.Conn, error) {
	accepted, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := accepted.(*listen.Conn)
	c.mu.Lock()
	c.byPeer[conn.RemoteAddr().String()] = &countedStream{conn: conn}
	c.mu.Unlock()
	conn.SetIdle(true)
	return &forgetful{Conn: conn, connections: c}, nil
}

// forgetful is a connection that may be closed before gRPC has called TagConn for it. In this case
// it removes itself from connections.byPeer.
type forgetful struct {
	*listen.Conn
	connections *connections
}

// Close implements net.Conn.
func (f *forgetful) Close() error {
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
	at, _ := ctx.Value(connectionKey{}).(*countedStream)
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
