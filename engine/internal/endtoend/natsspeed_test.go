package endtoend

import (
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
)

// natsSpeedMessages is the number of messages, of 150 bytes each, that each of the two compared
// programs reads.
const natsSpeedMessages = 200_000

// fill publishes the messages of a benchmark.
func (n *natsServer) fill(b *testing.B) {
	b.Helper()
	for i := range natsSpeedMessages {
		if _, err := n.js.PublishAsync("in", fmt.Appendf(nil, "%010d %0139d", i, i)); err != nil {
			b.Fatal(err)
		}
		if i%1000 != 999 {
			continue
		}
		select {
		case <-n.js.PublishAsyncComplete():
		case <-time.After(time.Minute):
			b.Fatal("the server does not acknowledge the messages")
		}
	}
}

// BenchmarkNATSDrop reads a stream by sequence and drops its messages. The speed is relative to an
// ordered consumer of nats.go, and its median should be at least 0.7.
func BenchmarkNATSDrop(b *testing.B) { benchmarkNATS(b, "nats-log", false) }

// BenchmarkNATSDropShared reads a stream by a durable consumer and acknowledges each message. The
// speed is relative to a program that does the same with nats.go, and its median should be at least
// 0.7.
func BenchmarkNATSDropShared(b *testing.B) { benchmarkNATS(b, "nats-consumer", true) }

func benchmarkNATS(b *testing.B, program string, shared bool) {
	s := startNATS(b)
	s.fill(b)
	config := filepath.Join(b.TempDir(), "penstock.yaml")
	runs := 0
	pairs(b, "of-nats.go",
		func() time.Duration {
			runs++
			return runBare(b, program, s.url, fmt.Sprint("bare-", runs), "")
		},
		func() time.Duration {
			durable := ""
			if shared {
				durable = fmt.Sprint(", durable: penstock-", runs)
			}
			write(b, config, fmt.Sprintf(`
state: ./state
pipelines:
  speed:
    source: { nats: { url: %q, stream: in%s } }
    sink: drop
`, s.url, durable))
			return copied(b, config, natsSpeedMessages)
		})
}

// posted is the load of BenchmarkHTTPToNATS: requests at once, and lines in each.
const (
	postedAtOnce  = 8
	postedLines   = 500
	postedInTotal = 400
)

// post sends the load to a server and returns the time until all of it was answered.
func post(b *testing.B, url string) time.Duration {
	b.Helper()
	line := fmt.Sprintf("%0149d\n", 7)
	body := strings.Repeat(line, postedLines)
	client := &nethttp.Client{Transport: &nethttp.Transport{MaxIdleConnsPerHost: postedAtOnce}}
	defer client.CloseIdleConnections()
	work := make(chan struct{}, postedInTotal)
	for range postedInTotal {
		work <- struct{}{}
	}
	close(work)
	start := time.Now()
	var all sync.WaitGroup
	for range postedAtOnce {
		all.Go(func() {
			for range work {
				res, err := client.Post(url, "text/plain", strings.NewReader(body))
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

// BenchmarkHTTPToNATS posts lines to penstock, which answers when the stream has them. The speed is
// relative to a handler that publishes each line with nats.go and waits for all acknowledgements.
// Its median should be at least 0.7. Both run on the same machine as the load: the handler in this
// process, and penstock in a process of its own.
func BenchmarkHTTPToNATS(b *testing.B) {
	s := startNATS(b)
	bare := httptest.NewServer(publishHandler(b, s.url))
	b.Cleanup(bare.Close)
	address := connectortest.FreeAddress(b)
	m := &member{t: b, config: write(b, filepath.Join(b.TempDir(), "penstock.yaml"),
		fmt.Sprintf(`
state: ./state
pipelines:
  speed:
    source: { http_server: { listen: %q, format: lines, ack: delivered } }
    sink: { nats: { url: %q, subject: out, format: raw } }
`, address, s.url))}
	m.start()
	await(b, time.Minute, "penstock listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	purge := func() {
		if err := s.out.Purge(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	pairs(b, "of-nats.go",
		func() time.Duration { purge(); return post(b, bare.URL) },
		func() time.Duration {
			purge()
			took := post(b, "http://"+address+"/")
			info, err := s.out.Info(b.Context())
			if err != nil || info.State.Msgs != postedInTotal*postedLines {
				b.Fatalf("the stream has %v messages, %v", info.State.Msgs, err)
			}
			return took
		})
}

// publishHandler publishes the lines of a request, and answers when the server has all of them.
func publishHandler(b *testing.B, url string) nethttp.Handler {
	b.Helper()
	conn, err := natsgo.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		b.Fatal(err)
	}
	return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, q *nethttp.Request) {
		if err := publishLines(q.Context(), js, q.Body); err != nil {
			nethttp.Error(w, err.Error(), nethttp.StatusServiceUnavailable)
		}
	})
}

func publishLines(ctx context.Context, js jetstream.JetStream, body io.Reader) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var acks []jetstream.PubAckFuture
	for line := range strings.Lines(string(text)) {
		ack, err := js.PublishAsync("out", []byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			return err
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
