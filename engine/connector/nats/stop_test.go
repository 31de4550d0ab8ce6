package nats_test

import (
	"bytes"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// TestStopWhileSilent checks that a route stops soon although the server no longer responds and
// its connections stay open.
func TestStopWhileSilent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, source string }{
		{"log", ""},
		{"durable", ", durable: d"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster(t, nil)
			cl.create(nil)
			texts := cl.publish("a", 100)
			var silent atomic.Bool
			cl.port = silenceable(t, cl.port, &silent, func([]byte) {})
			got := newArrivals()
			n := cl.start(got, route{timeout: "20s", source: c.source})
			until(t, "all messages", func() bool { return got.distinct() == len(texts) })
			silent.Store(true)
			began := time.Now()
			_ = n.stop() // the last commit has failed
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("it took %v to stop, want about 5s", took)
			}
		})
	}
}

// TestStopWhileConsumerIsRecreated stops a route while the server does not respond, and the client
// library therefore tries to recreate a consumer. The stop must take no longer than one attempt of
// the library, about 10 s.
func TestStopWhileConsumerIsRecreated(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.create(nil)
	texts := c.publish("a", 100)
	var silent atomic.Bool
	recreates := make(chan bool, 1)
	c.port = silenceable(t, c.port, &silent, func(dropped []byte) {
		if bytes.Contains(dropped, []byte("$JS.API.CONSUMER.CREATE.")) {
			select {
			case recreates <- true:
			default:
			}
		}
	})
	got := newArrivals()
	n := c.start(got, route{})
	until(t, "all messages", func() bool { return got.distinct() == len(texts) })
	silent.Store(true)
	<-recreates
	began := time.Now()
	_ = n.stop()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v to stop, want about 10s", took)
	}
}

// silenceable starts a proxy of a server and returns its port. While silent is set, the proxy
// forwards nothing, and calls dropped with the bytes that it has received.
func silenceable(
	t *testing.T, server int, silent *atomic.Bool, dropped func([]byte),
) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	forward := func(to, from net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				to.Close()
				return
			}
			if silent.Load() {
				dropped(buf[:n])
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				from.Close()
				return
			}
		}
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server))
			if err != nil {
				client.Close()
				continue
			}
			go forward(client, upstream)
			go forward(upstream, client)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
