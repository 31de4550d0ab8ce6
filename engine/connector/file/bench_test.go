package file_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/connector/file"
	"github.com/penstock-io/penstock/stream"
)

// BenchmarkFile compares the sink with a plain copy, without and with fsync. The sink gets batches
// of 256 KiB, and 16 of them are in flight.
func BenchmarkFile(b *testing.B) {
	const batchBytes, batches, atOnce = 256 << 10, 512, 16
	batch := lines(batchBytes/128, 128)
	data, _ := batch.Whole()
	copied := func(b *testing.B, sync bool) {
		b.SetBytes(batches * batchBytes)
		for b.Loop() {
			f, err := os.Create(filepath.Join(b.TempDir(), "copy"))
			if err != nil {
				b.Fatal(err)
			}
			for range batches {
				_, err = f.Write(data)
			}
			if sync {
				err = f.Sync()
			}
			if err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	}
	b.Run("copy", func(b *testing.B) { copied(b, false) })
	b.Run("copy+fsync", func(b *testing.B) { copied(b, true) })
	for _, fsync := range []string{file.SyncInterval, file.SyncAck} {
		b.Run("sink/"+fsync, func(b *testing.B) {
			b.SetBytes(batches * batchBytes)
			for b.Loop() {
				h := connectortest.NewHost(b)
				o := file.Options{Path: filepath.Join(b.TempDir(), "out"), Format: file.Raw,
					Fsync: fsync}
				s, lane := open(b, h, o, "")
				var place atomic.Int64
				deliver := func(context.Context) error {
					for {
						p := place.Add(1) - 1
						if p >= batches {
							return io.EOF
						}
						a := stream.Attempt{Value: batch, Index: uint32(p)}
						if _, err := lane.Worker.Deliver(context.Background(), a); err != nil {
							return err
						}
					}
				}
				ended := make(chan error, atOnce)
				for range atOnce {
					go func() { ended <- deliver(context.Background()) }()
				}
				for range atOnce {
					if err := <-ended; err != io.EOF {
						b.Fatal(err)
					}
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
