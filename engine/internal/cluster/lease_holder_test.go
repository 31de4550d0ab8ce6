//go:build !no_nats

package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bucket is a server with a bucket.
type bucket struct {
	t       *testing.T
	url     string
	server  *server.Server
	options *server.Options
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	o := &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true,
		NoSigs: true,
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return &bucket{t: t, url: s.ClientURL(), server: s, options: o}
}

// process is a LeaseHolder with its own connection.
type process struct {
	conn  *natsgo.Conn
	stop  context.CancelFunc
	ended chan error
}

// owners are the processes that work, with their epochs.
type owners struct {
	mu     sync.Mutex // guards the fields below
	now    map[string]context.Context
	epochs []uint64
	twice  bool // an owner began while another's context was not done
}

func (o *owners) set(ctx context.Context, name string, epoch uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, other := range o.now {
		o.twice = o.twice || other.Err() == nil
	}
	o.now[name] = ctx
	o.epochs = append(o.epochs, epoch)
}

func (o *owners) remove(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.now, name)
}

// owner returns the name of the process that works; "" if none does.
func (o *owners) owner() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.now {
		return name
	}
	return ""
}

// quick are short periods for tests.
var quick = times{renew: 250 * time.Millisecond, expire: 4 * time.Second, stop: 3 * time.Second}

func (b *bucket) start(name string, o *owners) *process {
	b.t.Helper()
	conn, err := natsgo.Connect(b.url, natsgo.NoReconnect())
	if err != nil {
		b.t.Fatal(err)
	}
	js, err := jetstream.New(conn)
	if err != nil {
		b.t.Fatal(err)
	}
	kv, err := js.CreateOrUpdateKeyValue(b.t.Context(), jetstream.KeyValueConfig{Bucket: "leases"})
	if err != nil {
		b.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(b.t.Output(), nil))
	r := &natsRegister{&link{session: &session{conn: conn, js: js, kv: kv}}, "pipeline"}
	l := NewLease(name)
	l.times = quick
	k := newLeaseHolder(r, "pipeline", l, clock, log)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	p := &process{conn: conn, stop: cancel, ended: make(chan error, 1)}
	go func() {
		p.ended <- k.Run(ctx, func(ctx context.Context, t Tenure) error {
			if err := t.Confirm(ctx); err != nil {
				return err
			}
			o.set(ctx, name, t.Epoch)
			defer o.remove(name)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	b.t.Cleanup(func() {
		cancel()
		err := <-p.ended
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, ErrNotOwner) {
			b.t.Errorf("%s ended with %v", name, err)
		}
		conn.Close()
	})
	return p
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// TestLeaseHolders checks that the second process takes over the lease in two cases: the owner
// stops, or its connection is cut. Epochs grow, and the two processes never work at the same time.
func TestLeaseHolders(t *testing.T) {
	t.Parallel() // it mostly waits
	b, o := newBucket(t), &owners{now: make(map[string]context.Context)}
	processes := map[string]*process{"a": b.start("a", o), "b": b.start("b", o)}
	await(t, "an owner", func() bool { return o.owner() != "" })
	first := o.owner()
	processes[first].conn.Close()
	second := map[string]string{"a": "b", "b": "a"}[first]
	await(t, "the takeover", func() bool { return o.owner() == second })
	b.start("c", o)
	processes[second].stop()
	await(t, "the takeover of a lease that was given back", func() bool { return o.owner() == "c" })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.twice || len(o.epochs) != 3 || o.epochs[0] >= o.epochs[1] || o.epochs[1] >= o.epochs[2] {
		t.Errorf("the epochs are %v; two processes worked at the same time: %v", o.epochs, o.twice)
	}
}

// TestLeaseHolderDeletedKey checks that a deleted key is written again with a higher epoch.
func TestLeaseHolderDeletedKey(t *testing.T) {
	t.Parallel() // it mostly waits
	b, o := newBucket(t), &owners{now: make(map[string]context.Context)}
	p := b.start("a", o)
	await(t, "an owner", func() bool { return o.owner() == "a" })
	js, err := jetstream.New(p.conn)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "leases")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(t.Context(), "pipeline"); err != nil {
		t.Fatal(err)
	}
	await(t, "another ownership", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.epochs) == 2
	})
	if o.epochs[1] <= o.epochs[0] {
		t.Errorf("the epochs are %v", o.epochs)
	}
}
