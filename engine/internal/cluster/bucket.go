package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/status"
)

// Bucket is a NATS key-value bucket that the processes of a cluster share. It has a key for the
// lease of each pipeline and a key for the progress of each route. Its methods are safe for
// concurrent use.
type Bucket struct {
	Name    string
	ID      string // a recreated bucket of the same name has another ID
	Created bool   // this process created the bucket, so it contains no progress

	owner string
	open  func(key string) Register
	close func()
	log   *slog.Logger
	clock func() time.Duration

	mu      sync.Mutex // guards the lease holders
	holders map[string]*LeaseHolder
}

// NewBucket returns a bucket that calls open to get access to a key (a Register). Tests use it with
// keys in memory. Connect returns the bucket of a NATS server.
func NewBucket(name, node string, open func(key string) Register, log *slog.Logger) *Bucket {
	session := make([]byte, 6)
	_, _ = rand.Read(session) // it never fails
	return &Bucket{
		Name: name, owner: node + ownerMark + hex.EncodeToString(session), open: open,
		close: func() {}, log: log, clock: clock, holders: make(map[string]*LeaseHolder),
	}
}

// ownerMark separates the two parts of the name of a lease's owner: the name of the node, and a
// random number that is new at each start of a process.
const ownerMark = "/"

// Close closes the connection. It does nothing if b is nil.
func (b *Bucket) Close() {
	if b != nil {
		b.close()
	}
}

// LeaseKey returns the key of the lease of a pipeline.
func LeaseKey(pipeline string) string { return "lease." + keyName(pipeline) }

// PositionsKey returns the key of the progress of a route. route is "pipeline/route".
func PositionsKey(route string) string {
	pipeline, name, _ := strings.Cut(route, "/")
	return "progress." + keyName(pipeline) + "." + keyName(name)
}

// keyName converts a name to a part of a key, which must not contain dots. It does not change the
// names that a config accepts.
func keyName(name string) string {
	var out strings.Builder
	for _, c := range []byte(name) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "=%02X", c)
		}
	}
	if out.Len() == 0 {
		return "="
	}
	return out.String()
}

// Own waits until this process is the owner of the pipeline, and then calls the function do. During
// this call, Own renews the pipeline's lease. If the lease is lost, Own waits again, and then calls
// the function again. See [LeaseHolder.Run].
func (b *Bucket) Own(ctx context.Context, pipeline string, do Work) error {
	k := newLeaseHolder(b.open(LeaseKey(pipeline)), pipeline, NewLease(b.owner), b.clock, b.log)
	b.mu.Lock()
	if old := b.holders[pipeline]; old != nil {
		v := old.View()
		k.view.Takeover, k.view.Starved = v.Takeover, v.Starved
	}
	b.holders[pipeline] = k
	b.mu.Unlock()
	return k.Run(ctx, do)
}

// Positions opens the saved progress of a route. The tenure t is a period in which this process
// owns the pipeline. After Positions has succeeded, earlier owners cannot save progress of the
// route.
func (b *Bucket) Positions(ctx context.Context, route string, t Tenure) (*Positions, error) {
	return OpenPositions(ctx, b.open(PositionsKey(route)), route, t)
}

// Leases returns the state of the leases that this process tries to hold, sorted by pipeline.
func (b *Bucket) Leases() []status.Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []status.Lease{}
	for _, pipeline := range slices.Sorted(maps.Keys(b.holders)) {
		v := b.holders[pipeline].View()
		node := v.Owner
		if i := strings.LastIndex(node, ownerMark); i >= 0 {
			node = node[:i]
		}
		silent := -1.0
		if v.Answered > 0 {
			silent = max(0, b.clock()-v.Answered).Seconds()
		}
		out = append(out, status.Lease{
			Pipeline: pipeline, Node: node, Epoch: v.Epoch, Owned: v.Owned,
			Takeovers: v.Takeover, Silent: silent, Failure: v.Failure, Starved: v.Starved,
		})
	}
	return out
}

// Forget removes a pipeline's lease from the result of Leases. It is called when the pipeline was
// removed or replaced by a new configuration.
func (b *Bucket) Forget(pipeline string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.holders, pipeline)
}
