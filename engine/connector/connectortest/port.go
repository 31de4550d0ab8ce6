package connectortest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// FreePort returns ports from firstPort to firstPort+ports-1. They lie below the ports that a
// system gives to outgoing connections. So no client takes a port before its server listens, or
// while its server restarts.
const (
	firstPort = 10_000
	ports     = 20_000
)

// portsTried counts the ports that FreePort has tried. FreePort begins at a random port
// (firstPort+randomPort), because the tests of other processes choose ports, too.
var (
	portsTried atomic.Uint32
	randomPort = rand.Uint32N(ports)
)

// FreePort returns a loopback port for a server that the test starts. It returns each port once,
// until it has returned all 20,000. It is safe for concurrent use.
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

// FreeAddress returns an address of loopback with a port of [FreePort].
func FreeAddress(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}
