package endtoend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// startBare starts a bare program that serves an address until the benchmark ends.
func startBare(b *testing.B, name, address string) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PENSTOCK_BARE_PROGRAM="+name, "PENSTOCK_BARE_ADDRESS="+address)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	awaitListener(b, address)
}

func awaitListener(t testing.TB, address string) {
	t.Helper()
	await(t, time.Minute, address+" listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// startPush starts penstock with a source and a sink that drops; admin is the address of its pages.
func startPush(t testing.TB, source, admin string) *member {
	t.Helper()
	m := &member{t: t, config: write(t, filepath.Join(t.TempDir(), "penstock.yaml"), fmt.Sprintf(`
state: ./state
admin: %q
pipelines:
  push:
    source: %s
    sink: drop
`, admin, source))}
	m.start()
	return m
}

// bareHTTP is a server with a handler that discards bodies.
func bareHTTP(_ context.Context, address, _, _ string) error {
	discard := func(w nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that has gone gets no answer
		w.WriteHeader(nethttp.StatusNoContent)
	}
	return nethttp.ListenAndServe(address, nethttp.HandlerFunc(discard))
}

// bareTCP is a server that reads and discards, and closes each connection at its end.
func bareTCP(_ context.Context, address, _, _ string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			buf := make([]byte, 64<<10)
			for err = nil; err == nil; {
				_, err = conn.Read(buf)
			}
			_ = conn.Close()
		}()
	}
}

const (
	pushConns  = 64
	pushBodies = 2000
	pushBody   = 256 << 10
)

// pushMessage is a syslog message of 200 bytes.
var pushMessage = "<165>1 2024-05-17T10:00:00.003Z host app 77 ID47 - " + strings.Repeat("m", 148)

// pushBodiesTo sends the bodies of BenchmarkPushHTTP, and returns the time until all are answered.
func pushBodiesTo(b *testing.B, url string) time.Duration {
	b.Helper()
	body := []byte(strings.Repeat(fmt.Sprintf("%0127d\n", 7), pushBody/128))
	client := &nethttp.Client{Transport: &nethttp.Transport{MaxIdleConnsPerHost: pushConns}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range pushConns {
		all.Go(func() {
			for next.Add(1) <= pushBodies {
				res, err := client.Post(url, "text/plain", bytes.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode/100 != 2 {
					b.Errorf("the server answered %s", res.Status)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(start)
}

// BenchmarkPushHTTP sends bodies of 256 KiB over 64 connections to the source http_server. The
// speed is relative to a bare handler that discards the bodies. Its median should be at least 0.6.
func BenchmarkPushHTTP(b *testing.B) {
	bare, ours := connectortest.FreeAddress(b), connectortest.FreeAddress(b)
	startBare(b, "http", bare)
	startPush(b, fmt.Sprintf("{ http_server: { listen: %q } }", ours), "off")
	awaitListener(b, ours)
	pairs(b, "of-net/http",
		func() time.Duration { return pushBodiesTo(b, "http://"+bare+"/") },
		func() time.Duration { return pushBodiesTo(b, "http://"+ours+"/") })
}

// BenchmarkPushSyslog sends messages over 4 TCP connections to the source syslog. Like a logger, it
// writes each message separately. The speed is relative to a bare reader, and its median should be
// at least 0.6.
func BenchmarkPushSyslog(b *testing.B) {
	bare, ours := connectortest.FreeAddress(b), connectortest.FreeAddress(b)
	startBare(b, "tcp", bare)
	startPush(b, fmt.Sprintf("{ syslog: { network: tcp, listen: %q } }", ours), "off")
	awaitListener(b, ours)
	send := func(address string) time.Duration {
		const conns, messages = 4, 100_000
		message := []byte(pushMessage + "\n")
		var all sync.WaitGroup
		start := time.Now()
		for range conns {
			all.Go(func() {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					b.Error(err)
					return
				}
				for range messages {
					if _, err := conn.Write(message); err != nil {
						b.Error(err)
						return
					}
				}
				// The server closes the connection when it has read all of it.
				_ = conn.(*net.TCPConn).CloseWrite()
				if _, err := io.Copy(io.Discard, conn); err != nil {
					b.Error(err)
				}
				_ = conn.Close()
			})
		}
		all.Wait()
		return time.Since(start)
	}
	pairs(b, "of-a-reader",
		func() time.Duration { return send(bare) }, func() time.Duration { return send(ours) })
}

// TestPushDatagrams sends datagrams to a bare reader at rising rates until the reader loses some.
// Then it sends datagrams to the source syslog at the highest rate at which the bare reader lost
// none. The source must lose none either.
func TestPushDatagrams(t *testing.T) {
	if os.Getenv("PENSTOCK_PUSH") == "" {
		t.Skip("run by make push-bench")
	}
	bare, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	var received atomic.Int64
	go func() {
		buf := make([]byte, 2048)
		for {
			if _, _, err := bare.ReadFrom(buf); errors.Is(err, net.ErrClosed) {
				return
			}
			received.Add(1)
		}
	}()
	rate := 0
	for next := 10_000; next <= 80_000; next *= 2 {
		before := received.Load()
		sent := sendDatagrams(t, bare.LocalAddr().String(), next)
		<-time.After(200 * time.Millisecond)
		if received.Load()-before < sent {
			break
		}
		rate = next
	}
	if rate == 0 {
		t.Skip("the bare reader loses datagrams at 10,000/s: this machine is too busy")
	}
	address, admin := connectortest.FreeAddress(t), connectortest.FreeAddress(t)
	startPush(t, fmt.Sprintf("{ syslog: { network: udp, listen: %q } }", address), admin)
	until(t, "http://"+admin+"/readyz", func(status int, _ string) bool { return status == 200 })
	sent := sendDatagrams(t, address, rate)
	t.Logf("%d datagrams at %d/s", sent, rate)
	until(t, "http://"+admin+"/api/v1/status", func(_ int, text string) bool {
		return strings.Contains(text, fmt.Sprintf(`"delivered":%d`, sent))
	})
}

// sendDatagrams sends messages for 3 s at the given rate, and returns their number.
func sendDatagrams(t *testing.T, address string, rate int) (sent int64) {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	message := []byte(pushMessage)
	start := time.Now()
	for past := time.Duration(0); past < 3*time.Second; past = time.Since(start) {
		for ; float64(sent) < past.Seconds()*float64(rate); sent++ {
			if _, err := conn.Write(message); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Millisecond)
	}
	return sent
}
