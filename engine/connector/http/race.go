//go:build race

package http

import "net"

// published tells the race detector that who reads from c comes after who writes to it. It knows that of write, and does not
// of writev: a test whose receiver runs in the same process would be called a race.
func published(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_, _ = tcp.Write(nil)
	}
}
