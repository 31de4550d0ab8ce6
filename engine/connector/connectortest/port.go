package connectortest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// FreePort returns ports from firstPort to firstPort+ports-1. They are lower than the ports that
// systems use by default for outgoing connections. A client therefore cannot get such a port before
// the server listens on it, or while the server restarts.
const (
	firstPort = 10_000
	ports     = 20_000
)

// portsTried counts the ports that FreePort has tried. FreePort begins after a random port,
// firstPort+randomPort, because tests in other processes choose ports as well.
var (
	portsTried atomic.Uint32
	randomPort = rand.Uint32N(ports)
)

// FreePort returns a loopback port for a server that the test starts. It returns no port twice
// until it has tried all 20,000 ports. It is safe for concurrent use.
func FreePort(t testing.TB) int {
	t.Helper()
	for range ports {
		port := firstPort + int((randomPort+portsTried.Add(1))%ports)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // it is in use
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
	t.Fatalf("all ports from %d to %d are in use", firstPort, firstPort+ports-1)
	return 0
}

// FreeAddress returns a loopback address with a port of [FreePort].
func FreeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}
