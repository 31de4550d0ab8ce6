package supervise_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// BenchmarkResenderAck sends and acks one message while n messages are held. The cost does not
// depend on n.
func BenchmarkResenderAck(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("held=%d", n), func(b *testing.B) {
			r, err := supervise.NewResender("r", supervise.Options[int, int, int]{
				Child: supervise.Each("none", func(context.Context, int, int) (int, error) {
					return 0, nil
				}),
				Limits: supervise.Limits{Items: n + 1},
			})
			if err != nil {
				b.Fatal(err)
			}
			for i := range n {
				if err := r.Send(b.Context(), i, i); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			next := n
			for b.Loop() {
				if err := r.Send(b.Context(), next, next); err != nil {
					b.Fatal(err)
				}
				if !r.Ack(next-n/2, 0) { // out of the middle
					b.Fatal("not held")
				}
				next++
			}
		})
	}
}

// BenchmarkSupervisorRestart crashes and restarts one child among n.
func BenchmarkSupervisorRestart(b *testing.B) {
	for _, n := range []int{1, 1_000, 10_000} {
		b.Run(fmt.Sprintf("children=%d", n), func(b *testing.B) {
			starts, crash := make(chan struct{}), make(chan struct{})
			children := make([]supervise.Child, n)
			for i := range children {
				children[i] = supervise.Child{Name: fmt.Sprint(i),
					Run: func(ctx context.Context) error {
						<-ctx.Done()
						return nil
					}}
			}
			children[n/2].Run = func(ctx context.Context) error {
				select {
				case starts <- struct{}{}:
					<-crash
					return errCrash
				case <-ctx.Done():
					return nil
				}
			}
			s, err := supervise.New("root", supervise.Spec{Backoff: backoff.Fixed(0), Stagger: -1},
				children...)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error)
			go func() { ended <- s.Serve(ctx) }()
			<-starts // all of them
			b.ReportAllocs()
			for b.Loop() {
				crash <- struct{}{}
				<-starts
			}
			cancel()
			<-ended
		})
	}
}
