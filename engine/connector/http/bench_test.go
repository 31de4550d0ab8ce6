package http_test

import (
	"bytes"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// BenchmarkPost compares the sink with a bare client: batches of 256 KiB, 4 in flight, one server.
func BenchmarkPost(b *testing.B) {
	const batches, atOnce = 256, 4
	server := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	defer server.Close()
	batch := lines(new(stream.Pool), 2048, 128)
	data, _ := batch.Whole()
	run := func(b *testing.B, post func() error) {
		b.SetBytes(batches * int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var left atomic.Int64
			left.Store(batches)
			var wg sync.WaitGroup
			for range atOnce {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if err := post(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
	}
	b.Run("bare", func(b *testing.B) {
		client := &nethttp.Client{Transport: &nethttp.Transport{MaxIdleConnsPerHost: atOnce}}
		run(b, func() error {
			res, err := client.Post(server.URL, "text/plain", bytes.NewReader(data))
			if err == nil {
				_, err = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			return err
		})
	})
	b.Run("sink", func(b *testing.B) {
		lane := rawTo(b, server.URL, nil)
		run(b, func() error { return deliver(b.Context(), lane, batch) })
	})
}
