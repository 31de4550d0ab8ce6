package httpserver

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
)

const (
	maxKey     = 256      // bytes of an Idempotency-Key
	keysBytes  = 32 << 20 // of remembered answers
	keyCost    = 256      // bytes of an answer beside its body
	maxAnswers = keysBytes / keyCost
)

// keyed is the request of an Idempotency-Key, in work or answered.
type keyed struct {
	key   string
	hash  [sha256.Size]byte
	begun time.Time
	ready chan struct{} // closed when sub is set, or the request has failed before that

	sub   *intake.Submission // nil: the request has failed before it was submitted
	reply reply              // once sub is settled
}

// request returns the id of the request's partition. The hash of the body is part of it, so that
// after a restart another body under the key is never taken for one that was delivered.
func (e *keyed) request() string {
	sum := sha256.Sum256(append(e.hash[:], e.key...))
	return hex.EncodeToString(sum[:16])
}

// keys remembers requests by their Idempotency-Key, so that one that is repeated is not delivered
// again. It is safe for concurrent use.
type keys struct {
	keep time.Duration

	mu    sync.Mutex // guards what follows
	by    map[string]*list.Element
	order *list.List // of *keyed, the oldest first
	bytes int
}

func newKeys(keep time.Duration) *keys {
	return &keys{keep: keep, by: make(map[string]*list.Element), order: list.New()}
}

// begin returns the request of a key. mine means that it is new: the caller submits it and calls
// submitted or failed.
func (k *keys) begin(key string, hash [sha256.Size]byte, now time.Time) (entry *keyed, mine bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire(now)
	if e := k.by[key]; e != nil {
		return e.Value.(*keyed), false
	}
	entry = &keyed{key: key, hash: hash, begun: now, ready: make(chan struct{})}
	k.by[key] = k.order.PushBack(entry)
	k.bytes += keyCost
	return entry, true
}

// submitted notes that the request was handed to the routes, and the answer that it gets once it is
// settled.
func (k *keys) submitted(e *keyed, sub *intake.Submission, r reply) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.sub, e.reply = sub, r
	if k.by[e.key] != nil {
		k.bytes += len(r.body)
	}
	close(e.ready)
}

// failed forgets a request of which nothing was taken.
func (k *keys) failed(e *keyed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-e.ready:
	default:
		close(e.ready)
	}
	if at := k.by[e.key]; at != nil && at.Value.(*keyed) == e {
		k.remove(at)
	}
}

// expire forgets answers that are too old, and the oldest ones where there are too many.
func (k *keys) expire(now time.Time) {
	for {
		oldest := k.order.Front()
		if oldest == nil {
			return
		}
		if now.Sub(oldest.Value.(*keyed).begun) < k.keep && k.bytes <= keysBytes && k.order.Len() <= maxAnswers {
			return
		}
		k.remove(oldest)
	}
}

func (k *keys) remove(at *list.Element) {
	e := k.order.Remove(at).(*keyed)
	delete(k.by, e.key)
	k.bytes -= keyCost + len(e.reply.body)
}

// wait returns the submission of a request that another one has begun; nil if it has failed.
func (e *keyed) wait(ctx context.Context) (*intake.Submission, error) {
	select {
	case <-e.ready:
		return e.sub, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
