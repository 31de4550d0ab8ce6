//go:build !no_nats

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
)

// owned is a pipeline that this process owns, and the progress of its route.
type owned struct {
	*bucket
	shared    *Bucket
	tenure    Tenure
	positions *Positions
}

// own connects to the server and acquires a lease.
func (b *bucket) own() *owned {
	b.t.Helper()
	c := config.DefaultCluster()
	c.URL, c.Node, c.Replicas = b.url, "a", 1
	log := slog.New(slog.NewTextHandler(b.t.Output(), nil))
	shared, err := Connect(b.t.Context(), &c, log)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	began, ended := make(chan Tenure, 10), make(chan error, 1)
	go func() {
		ended <- shared.Own(ctx, "p", func(ctx context.Context, t Tenure) error {
			began <- t
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	b.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			b.t.Errorf("the lease holder ended with %v", err)
		}
		shared.Close()
	})
	o := &owned{bucket: b, shared: shared, tenure: <-began}
	if o.positions, err = shared.Positions(b.t.Context(), "p/r", o.tenure); err != nil {
		b.t.Fatal(err)
	}
	return o
}

// breakConnection makes the client library close its connection. At the server, it lowers
// max_payload, the maximum size of a message. The clients do not learn of this. Then it sends a
// larger message.
func (o *owned) breakConnection() {
	o.t.Helper()
	lower := o.options.Clone()
	lower.MaxPayload = 2000
	if err := o.server.ReloadOptions(lower); err != nil {
		o.t.Fatal(err)
	}
	if err := o.save(strings.Repeat("x", 5000)); err == nil {
		o.t.Fatal("progress above max_payload was saved")
	}
}

func (o *owned) save(metadata string) error {
	m := stream.Mark{Part: stream.Partition{ID: "1"}, Metadata: metadata}
	return o.positions.Append("p/r", []stream.Mark{m}, nil)
}

// TestClosedConnection checks that a lease is renewed and that progress is saved after the library
// has closed the connection permanently.
func TestClosedConnection(t *testing.T) {
	t.Parallel() // it mostly waits
	o := newBucket(t).own()
	o.breakConnection()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := o.tenure.Confirm(ctx); err != nil {
		t.Fatalf("the lease is not renewed: %v; %+v", err, o.shared.Leases())
	}
	if l := o.shared.Leases()[0]; !l.Owned || l.Takeovers != 1 || l.Failure != "" {
		t.Errorf("the lease is %+v, want one that is owned since the first takeover", l)
	}
	if err := o.save("small"); err != nil {
		t.Errorf("progress is not saved: %v", err)
	}
	if err := o.save(strings.Repeat("x", 5000)); !errors.Is(err, natsgo.ErrMaxPayload) {
		t.Errorf("progress above max_payload results in %v", err)
	}
	if err := o.tenure.Confirm(ctx); err != nil {
		t.Errorf("the lease is not renewed: %v", err)
	}
}

// TestClosedConnectionOtherBucket checks the reported state while a closed connection cannot be
// replaced. First, the bucket is missing, and must not be created. Then there is a new bucket of
// the same name, and it must not be accepted.
func TestClosedConnectionOtherBucket(t *testing.T) {
	t.Parallel() // it mostly waits
	o := newBucket(t).own()
	conn, err := natsgo.Connect(o.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err == nil {
		err = js.DeleteKeyValue(t.Context(), "penstock")
	}
	if err != nil {
		t.Fatal(err)
	}
	o.breakConnection()
	failure := func(want string) func() bool {
		return func() bool {
			l := o.shared.Leases()[0]
			return !l.Owned && strings.Contains(l.Failure, want)
		}
	}
	await(t, "the loss of the lease", failure(jetstream.ErrBucketNotFound.Error()))
	_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "penstock"})
	if err != nil {
		t.Fatalf("the bucket was created, or: %v", err)
	}
	await(t, "the refusal of another bucket", failure("was deleted and created again"))
}
