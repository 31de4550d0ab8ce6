package httpsink

import (
	"context"
	"io"
	"net"
	nethttp "net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestMuteConnection checks that a request over an HTTP/2 connection fails when the server answers
// no ping.
func TestMuteConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(&Sink{o: *defaults()}, &endpoint{}, nil)
		tr.Protocols = new(nethttp.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0} // an empty frame SETTINGS
			go func() { _, _ = server.Write(settings) }()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r, err := nethttp.NewRequestWithContext(ctx, nethttp.MethodGet, "http://sink.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if res, err := tr.RoundTrip(r); err == nil {
			_ = res.Body.Close()
			t.Error("the request got a response")
		}
		if took := time.Since(begun); took != pingAfter+pingTimeout {
			t.Errorf("the request failed after %v, want %v", took, pingAfter+pingTimeout)
		}
	})
}
