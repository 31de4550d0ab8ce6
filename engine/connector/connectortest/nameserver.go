package connectortest

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// NameServer is a DNS server on a loopback port. It answers A, AAAA and SRV queries from the
// records that a test has set. It is safe for concurrent use.
type NameServer struct {
	conn  net.PacketConn
	ended chan struct{}

	mu        sync.Mutex // guards the fields below
	addresses map[string][]string
	services  map[string][]net.SRV
	failing   bool            // answers SERVFAIL
	broken    map[string]bool // names for which it answers SERVFAIL
}

// NewNameServer returns a server that runs until the test ends.
func NewNameServer(t testing.TB) *NameServer {
	t.Helper()
	s, err := StartNameServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// StartNameServer returns a server that runs until Close, for programs that are not tests.
func StartNameServer() (*NameServer, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &NameServer{conn: conn, ended: make(chan struct{})}
	s.addresses, s.services = make(map[string][]string), make(map[string][]net.SRV)
	s.broken = make(map[string]bool)
	go s.run()
	return s, nil
}

// Close ends the server.
func (s *NameServer) Close() {
	_ = s.conn.Close() // ends run
	<-s.ended
}

func (s *NameServer) run() {
	defer close(s.ended)
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if n > 12 {
			_, _ = s.conn.WriteTo(s.answer(buf[:n]), from)
		}
	}
}

// Addr returns the host:port of the server.
func (s *NameServer) Addr() string { return s.conn.LocalAddr().String() }

// Set replaces the addresses of a name.
func (s *NameServer) Set(name string, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addresses[name] = addresses
}

// Serve replaces the SRV records of a name.
func (s *NameServer) Serve(name string, records ...net.SRV) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services[name] = records
}

// Fail makes the server answer every query with SERVFAIL (true), or normally (false).
func (s *NameServer) Fail(failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = failing
}

// FailName makes the server answer queries for one name with SERVFAIL (true), or normally (false).
func (s *NameServer) FailName(name string, failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[name] = failing
}

const (
	typeA    = 1
	typeAAAA = 28
	typeSRV  = 33
)

// answer returns the response to a query with one question.
func (s *NameServer) answer(query []byte) []byte {
	var labels []string
	at := 12
	for query[at] != 0 {
		labels = append(labels, string(query[at+1:at+1+int(query[at])]))
		at += 1 + int(query[at])
	}
	name, kind := strings.Join(labels, "."), binary.BigEndian.Uint16(query[at+1:])
	out := append([]byte{}, query[:at+5]...) // without additional records
	copy(out[2:12], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing || s.broken[name] {
		out[3] |= 2
		return out
	}
	add := func(data []byte) {
		out[7]++
		// compressed name, type, class, time to live of 1 s
		out = append(out, 0xC0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 1)
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(data))), data...)
	}
	for _, text := range s.addresses[name] {
		ip := netip.MustParseAddr(text)
		if kind == typeA && ip.Is4() || kind == typeAAAA && ip.Is6() {
			add(ip.AsSlice())
		}
	}
	if kind == typeSRV {
		for _, r := range s.services[name] {
			data := binary.BigEndian.AppendUint16([]byte{0, 0, 0, 1}, r.Port)
			for label := range strings.SplitSeq(r.Target, ".") {
				data = append(append(data, byte(len(label))), label...)
			}
			add(append(data, 0))
		}
	}
	return out
}
