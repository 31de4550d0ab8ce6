//go:build linux

package faults

import (
	"io"
	"net"
	"sync"
	"time"
)

// wireFault is a fault of a TCP connection after some bytes have passed in one direction.
type wireFault struct {
	name     string
	answers  bool  // count bytes from the server, not from the client
	after    int64 // bytes that pass first
	refuse   bool  // accept and close at once
	end      ending
	garbage  string        // sent to the client before the end
	drip     time.Duration // afterwards a pause before each kilobyte, without closing
	halfOnly bool          // close only the direction with the counted bytes
}

// proxy forwards TCP connections to a server, and breaks the connections that the schedule selects.
type proxy struct {
	listener net.Listener
	server   string
	fault    wireFault
	when     schedule

	mu    sync.Mutex
	count int
	well  chan struct{} // closed by heal
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// proxyTo starts a proxy before a server; the rig stops it at the end of the case.
func (r *rig) proxyTo(server string, fault wireFault, when schedule) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.check(err)
	p := &proxy{
		listener: l, server: server, fault: fault, when: when, well: make(chan struct{}),
		conns: map[net.Conn]struct{}{},
	}
	p.wg.Go(p.accept)
	r.cleanup(func() {
		p.listener.Close()
		p.heal()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) isWell() bool {
	select {
	case <-p.well:
		return true
	default:
		return false
	}
}

// heal ends the fault and closes the existing connections. Later connections are forwarded.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isWell() {
		close(p.well)
	}
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		n := p.count
		p.count++
		p.conns[client] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() {
			p.forward(client, !p.isWell() && p.when.faulty(n))
			p.mu.Lock()
			delete(p.conns, client)
			p.mu.Unlock()
		})
	}
}

func (p *proxy) forward(client net.Conn, faulty bool) {
	defer client.Close()
	if faulty && p.fault.refuse {
		p.finish(client)
		return
	}
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client, client, server, faulty && !p.fault.answers) })
	both.Go(func() { p.copy(client, server, client, server, faulty && p.fault.answers) })
	both.Wait()
}

// copy forwards one direction. If faulty is set, the fault occurs after the given number of bytes.
func (p *proxy) copy(to, from, client, server net.Conn, faulty bool) {
	if !faulty {
		_, err := io.Copy(to, from)
		closeWrite(to)
		if err != nil {
			closeBoth(client, server)
		}
		return
	}
	_, err := io.CopyN(to, from, p.fault.after)
	switch {
	case err != nil:
	case p.fault.drip > 0:
		tick := time.NewTicker(p.fault.drip)
		defer tick.Stop()
		for err == nil {
			<-tick.C
			_, err = io.CopyN(to, from, 1024)
		}
	case p.fault.halfOnly:
		closeWrite(to)
		_, _ = io.Copy(io.Discard, from)
		return
	default:
		p.finish(client)
	}
	closeBoth(client, server)
}

func (p *proxy) finish(client net.Conn) {
	_, _ = io.WriteString(client, p.fault.garbage)
	switch p.fault.end {
	case resetConn:
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	case hang:
		timer := time.NewTimer(time.Minute)
		defer timer.Stop()
		select {
		case <-p.well:
		case <-timer.C:
		}
	}
}

func closeBoth(a, b net.Conn) {
	a.Close()
	b.Close()
}

func closeWrite(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}
