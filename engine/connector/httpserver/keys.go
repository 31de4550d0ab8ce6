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
	maxKey     = 256      // maximum length of an Idempotency-Key in bytes
	keysBytes  = 32 << 20 // bytes of all remembered responses
	keyCost    = 256      // bytes of a remembered response in addition to its body
	maxAnswers = keysBytes / keyCost
)

// keyed is a request with an Idempotency-Key. It is in progress or answered.
type keyed struct {
	key   string
	hash  [sha256.Size]byte
	begun time.Time
	ready chan struct{} // closed when sub is set or the request has failed

	sub   *intake.Submission // nil if the request failed before it was submitted
	reply reply              // the response, valid when sub is settled
}

// request returns the id of the request's partition in the intake. The id depends on the key and
// the body. So after a restart, a request with the key of an earlier request but another body is
// not mistaken for the earlier one.
func (e *keyed) request() string {
	sum := sha256.Sum256(append(e.hash[:], e.key...))
	return hex.EncodeToString(sum[:16])
}

// keys remembers requests by their Idempotency-Key, so that a repeated request is not delivered a
// second time. It is safe for concurrent use.
type keys struct {
	keep time.Duration

	mu    sync.Mutex // guards the fields below
	by    map[string]*list.Element
	order *list.List // of *keyed, oldest first
	bytes int
}

func newKeys(keep time.Duration) *keys {
	return &keys{keep: keep, by: make(map[string]*list.Element), order: list.New()}
}

// begin returns the entry of the request with the given key. If the key is new, begin makes the
// entry, and mine is true. The caller must then submit the request, and call submitted or failed.
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

// submitted notes that the request e was submitted to the routes. r is the response to send when
// the request is settled.
func (k *keys) submitted(e *keyed, sub *intake.Submission, r reply) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.sub, e.reply = sub, r
	if at := k.by[e.key]; at != nil && at.Value.(*keyed) == e {
		k.bytes += len(r.body)
	}
	close(e.ready)
}

// failed forgets the request e. Call it if none of the request's records were accepted.
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

// expire forgets requests that are older than the duration keep. It also forgets the oldest
// requests while there are too many, or while their responses take too much memory.
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

// wait is for a repeated request. It waits until the first request with the same key has been
// submitted, and returns its submission. It returns nil if that request failed before.
func (e *keyed) wait(ctx context.Context) (*intake.Submission, error) {
	select {
	case <-e.ready:
		return e.sub, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
