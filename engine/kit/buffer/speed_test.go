//go:build !no_nats

package buffer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// plainLog is a Store that only appends, and is as durable as JetStream: one write and one fsync
// for each envelope.
type plainLog struct {
	file *os.File
	last uint64
	size int64
}

func (p *plainLog) Append(_ context.Context, number uint64, text []byte) error {
	_, err := p.file.Write(text)
	p.last, p.size = number, p.size+int64(len(text))
	return errors.Join(err, p.file.Sync())
}

func (p *plainLog) Get(context.Context, uint64) ([]byte, error) { return nil, ErrMissing }
func (p *plainLog) Purge(context.Context, uint64) error         { return nil }
func (p *plainLog) Close() error                                { return p.file.Close() }
func (p *plainLog) State(context.Context) (first, last uint64, size int64, err error) {
	return 1, p.last, p.size, nil
}

// storedIn measures the time in which a number of senders store their bodies in a buffer over
// store.
func storedIn(b *testing.B, store Store, senders, bodies, size int) time.Duration {
	b.Helper()
	host := streamtest.NewHost(b)
	o := DefaultOptions()
	o.Bytes = 1 << 40
	open := func(context.Context) (Store, error) { return store, nil }
	buf, err := newBuffer(o, intake.Options{}, host, open)
	if err != nil {
		b.Fatal(err)
	}
	<-buf.opened
	body := bytes.Repeat([]byte("0123456789abcdef0123456789abcde\n"), size/32)
	start := time.Now()
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for range bodies {
				room, err := buf.in.Reserve(b.Context(), int64(2*size))
				if err != nil {
					b.Error(err)
					return
				}
				sub, err := room.Submit(intake.Lines(bytes.Clone(body)), true)
				if err == nil {
					err = sub.Wait(b.Context())
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	if err := host.Stop(); err != nil {
		b.Error(err)
	}
	return took
}

// BenchmarkStored compares the speed of JetStream with that of a plain log with the same group
// commit. Both store the bodies of 64 senders, in 7 interleaved pairs of runs. In the median pair,
// JetStream should be at least half as fast as the plain log.
func BenchmarkStored(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "16KiB": 16 << 10, "256KiB": 256 << 10} {
		b.Run(name, func(b *testing.B) {
			const senders = 64
			bodies := max(4, 64<<20/size/senders)
			var ratios []float64
			for b.Loop() {
				for range 7 {
					f, err := os.Create(filepath.Join(b.TempDir(), "log"))
					if err != nil {
						b.Fatal(err)
					}
					plain := storedIn(b, &plainLog{file: f}, senders, bodies, size)
					o := DefaultOptions()
					o.Bytes = 4 << 30
					js, err := OpenStore(b.Context(), b.TempDir(), o, slog.New(slog.DiscardHandler))
					if err != nil {
						b.Fatal(err)
					}
					ours := storedIn(b, js, senders, bodies, size)
					ratios = append(ratios, plain.Seconds()/ours.Seconds())
					b.Logf("plain %v, JetStream %v: %.2f", plain, ours, plain.Seconds()/ours.Seconds())
				}
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-plain-log")
			b.ReportMetric(0, "ns/op")
		})
	}
}
