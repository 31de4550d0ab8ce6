package http

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleConnectionsAreClosed: a connection that was not used for idlePatience goes when another one comes back, the last used is taken
// first, and none stays after close.
func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p wires
		used := func() (*wire, net.Conn) {
			near, far := net.Pipe()
			w, err := newWire(near)
			if err != nil {
				t.Fatal(err)
			}
			w.used = time.Now()
			return w, far
		}
		closed := func(far net.Conn) bool {
			_ = far.SetReadDeadline(time.Now())
			_, err := far.Read(make([]byte, 1))
			return err == io.EOF
		}
		a, farA := used()
		p.put(a, true)
		time.Sleep(idlePatience / 2)
		b, farB := used()
		p.put(b, true)
		time.Sleep(idlePatience/2 + time.Second)
		c, farC := used()
		p.put(c, true)
		for name, wrong := range map[string]bool{"a": !closed(farA), "b": closed(farB), "c": closed(farC)} {
			if wrong {
				t.Errorf("%s: the wrong ones were closed or kept", name)
			}
		}
		if got := p.pop(); got != c {
			t.Error("the one that was used last is not taken first")
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
		p.put(c, true)
		if !closed(farB) || !closed(farC) || p.pop() != nil {
			t.Error("after close a connection is left")
		}
	})
}
