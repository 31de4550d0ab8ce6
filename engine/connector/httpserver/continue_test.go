package httpserver_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/httpserver"
)

// TestExpectContinue checks clients that wait with their body for the response 100. If the source
// is full or refuses the request, it responds with an error, so that the client does not send the
// body. Otherwise the source asks for the body.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	s := run(t, "memory: 8MiB, max_body: 4MiB, deadline: 3s, token: long-enough-token")
	room, err := s.server.Reserve(t.Context(), 6<<20)
	if err != nil {
		t.Fatal(err)
	}
	const token = "Authorization: Bearer long-enough-token"
	s.expectContinue(token, 4<<20, 503, "untaken")
	s.expectContinue(token, 5<<20, 413, "")
	s.expectContinue("Authorization: Bearer another-token", 10, 401, "")
	if held := s.server.Held(); held != 6<<20 {
		t.Errorf("%d bytes are held for refused requests", held-6<<20)
	}
	room.Release()
	s.expectContinue(token, 100<<10, 100, "")
}

// expectContinue sends the header of a request and waits for the response. If the response is 100,
// it sends the body.
func (s *service) expectContinue(token string, length, want int, state string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\n\r\n", token, length); err != nil {
		s.t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	response, err := nethttp.ReadResponse(in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if got := response.Header.Get(httpserver.StateHeader); response.StatusCode != want ||
		got != state {
		s.t.Errorf("%d bytes: %s %q, want %d %q", length, response.Status, got, want, state)
	}
	if response.StatusCode != nethttp.StatusContinue {
		return
	}
	if _, err := io.WriteString(conn, strings.Repeat("x", length)); err != nil {
		s.t.Fatal(err)
	}
	if response, err = nethttp.ReadResponse(in, nil); err != nil || response.StatusCode != 200 {
		s.t.Errorf("after the body: %v, %v; want 200", response, err)
	}
}
