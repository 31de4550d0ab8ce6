package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/cluster"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// registers is a bucket in memory.
type registers struct {
	mu       sync.Mutex // guards the fields below
	revision uint64
	keys     map[string]cluster.Stored
}

type register struct {
	r   *registers
	key string
}

func (r register) Read(context.Context) (cluster.Stored, error) {
	r.r.mu.Lock()
	defer r.r.mu.Unlock()
	if s, ok := r.r.keys[r.key]; ok {
		return s, nil
	}
	return cluster.Stored{Revision: r.r.revision}, nil
}

func (r register) Write(_ context.Context, found bool, revision uint64, data []byte) (uint64, error) {
	r.r.mu.Lock()
	defer r.r.mu.Unlock()
	if s, ok := r.r.keys[r.key]; ok != found || ok && s.Revision != revision {
		return 0, cluster.ErrConflict
	}
	r.r.revision++
	r.r.keys[r.key] = cluster.Stored{Found: true, Revision: r.r.revision, Data: data}
	return r.r.revision, nil
}

// sharedFake is a fakeSource that processes can share.
type sharedFake struct{ fakeSource }

// Shared implements stream.SharedSource.
func (s *sharedFake) Shared() error { return nil }

// Finishes implements stream.Finisher: it has nothing to finish.
func (s *sharedFake) Finishes() bool { return false }

// sharedEngine is an engine of a cluster, with files of its own.
func sharedEngine(t *testing.T, r *registers, node string, source stream.Source,
	sink stream.Sink) (*Engine, error) {
	t.Helper()
	route := config.DefaultRoute("r", "/state")
	route.Sink = use(stream.SinkRole, sink)
	c := &config.Config{State: "/state", Cluster: config.DefaultCluster()}
	c.Pipelines = []config.Pipeline{
		{Name: "p", Source: use(stream.SourceRole, source), Routes: []config.Route{route}},
	}
	c.Cluster.URL, c.Cluster.Node = "nats://fake:1", node
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	return New(c, Options{FS: vfstest.New(), Log: log,
		connect: func(context.Context, *config.Cluster, *slog.Logger) (*cluster.Bucket, error) {
			open := func(key string) cluster.Register { return register{r, key} }
			return cluster.NewBucket("b", node, open, log), nil
		}})
}

// TestSharedPipeline runs a shared pipeline in two engines. One of them must run it while the other
// stands by. When the first one drains, the second one resumes from the stored progress.
func TestSharedPipeline(t *testing.T) {
	r := &registers{keys: make(map[string]cluster.Stored)}
	lines := numbered(100)
	sinks := []*fakeSink{{}, {}}
	var engines []*Engine
	var ended []chan error
	for i, node := range []string{"a", "b"} {
		source := &sharedFake{fakeSource{lines: lines[:50+50*i], size: 7}}
		e, err := sharedEngine(t, r, node, source, sinks[i])
		if err != nil {
			t.Fatal(err)
		}
		engines, ended = append(engines, e), append(ended, make(chan error, 1))
		go func() { ended[i] <- e.Run(t.Context()) }()
		await(t, func() bool {
			c := e.Status().Cluster
			return c != nil && len(c.Leases) == 1 && c.Leases[0].Node == "a"
		})
	}
	got := func(i int) int {
		sinks[i].mu.Lock()
		defer sinks[i].mu.Unlock()
		return len(sinks[i].got)
	}
	await(t, func() bool { return got(0) == 50 })
	if h := engines[1].Status().Routes[0].Health; h != healthStandby || !engines[1].Status().Ready {
		t.Errorf("the second engine is %s, ready: %v; want a ready standby", h, engines[1].Status().Ready)
	}
	engines[0].Drain()
	if err := <-ended[0]; err != nil {
		t.Errorf("the first engine ended with %v", err)
	}
	await(t, func() bool { return got(1) == 50 })
	if first := sinks[1].got[0]; first != lines[50] {
		t.Errorf("the second engine begins with %q, want %q", first, lines[50])
	}
	l := engines[1].Status().Cluster.Leases[0]
	if !l.Owned || l.Node != "b" || l.Takeovers != 1 {
		t.Errorf("the lease is %+v, want one of b", l)
	}
	engines[1].Drain()
	if err := <-ended[1]; err != nil {
		t.Errorf("the second engine ended with %v", err)
	}
}

// TestStandbyDrains checks that an engine that owns no pipeline ends when it drains.
func TestStandbyDrains(t *testing.T) {
	r := &registers{keys: map[string]cluster.Stored{
		cluster.LeaseKey("p"): {Found: true, Revision: 1, Data: []byte(`{"owner":"x/1","epoch":1,"count":1}`)},
	}, revision: 1}
	e, err := sharedEngine(t, r, "a", &sharedFake{}, &fakeSink{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	await(t, func() bool {
		c := e.Status().Cluster
		return c != nil && len(c.Leases) == 1 && c.Leases[0].Node == "x"
	})
	e.Drain()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// appendFake is a fakeSink that appends to an output.
type appendFake struct{ fakeSink }

func (s *appendFake) StartToken() string         { return "" }
func (s *appendFake) Sync(context.Context) error { return nil }

// slowToStop is a source that cannot be shared because of its options.
type slowToStop struct{ fakeSource }

// Shared implements stream.SharedSource.
func (s *slowToStop) Shared() error { return errors.New("option x forbids it") }

// TestNotShared checks that sources and sinks that belong to one machine are refused.
func TestNotShared(t *testing.T) {
	for _, c := range []struct {
		source stream.Source
		sink   stream.Sink
		want   string
	}{
		{&fakeSource{}, &fakeSink{}, "source fake cannot be shared with `state.nats`: its data"},
		{&slowToStop{}, &fakeSink{}, "option x forbids it"},
		{&sharedFake{}, &appendFake{}, "sink fake cannot be shared with `state.nats`: it appends"},
	} {
		r := &registers{keys: make(map[string]cluster.Stored)}
		_, err := sharedEngine(t, r, "a", c.source, c.sink)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T into %T: %v, want an error with %q", c.source, c.sink, err, c.want)
		}
	}
}

// TestBucketFile checks that a bucket that was deleted and created again is refused.
func TestBucketFile(t *testing.T) {
	m := vfstest.New()
	dir, err := m.MakeDir("/state", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for i, c := range []struct {
		name, id string
		ok       bool
	}{{"b", "1", true}, {"b", "1", true}, {"b", "2", false}, {"c", "2", true}, {"b", "2", true}} {
		b := cluster.NewBucket(c.name, "a", nil, nil)
		b.ID = c.id
		if err := checkBucketFile(dir, b); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok: %v", fmt.Sprint(i, c.name, c.id), err, c.ok)
		}
	}
}

func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited 20s")
		}
	}
}
