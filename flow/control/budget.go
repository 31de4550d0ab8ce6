//penstock:pure

package control

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/penstock-io/penstock/rate"
)

// Budget bounds the rate of failed retries, so that the failure of some workers does not multiply
// the load of the others. It is a token bucket. An attempt of an item that a worker has failed, or
// left overdue, takes one token. Every delivery adds Share tokens, and every second adds PerSecond.
// If an attempt that took a token (a paid attempt) delivers, it returns the token, as in the AWS
// SDKs' retry quota. So the backlog of an outage is delivered quickly afterwards. While the bucket
// is empty, failed items wait and new ones are sent before them; nothing is dropped. Attempts that
// end Throttled or Misconfigured, probes, hedges and attempts of suspects cost no tokens: they have
// separate bounds.
//
// In any t seconds with n deliveries, at most Burst + Share*n + PerSecond*t paid attempts have
// failed or are still running. The zero value means the defaults, which are those of gRPC (A6) and
// Finagle.
type Budget struct {
	// tokens added per delivery, at most 1; 0 means 0.1; negative: there is no budget
	Share     float64
	PerSecond float64 // tokens added per second; 0 means 10
	Burst     float64 // maximum of tokens in the bucket, 1 or more; 0 means 10
}

const (
	defaultShare     = 0.1
	defaultPerSecond = 10.0
	defaultBurst     = 10.0
)

// withDefaults checks b and replaces zeros by the defaults.
func (b Budget) withDefaults() (Budget, error) {
	switch {
	case !(b.Share <= 1):
		return b, fmt.Errorf("a share of %v redeliveries for a delivery: want up to 1, 0 for %v, "+
			"or a negative one for no budget",
			b.Share, defaultShare)
	case !(b.PerSecond >= 0) || math.IsInf(b.PerSecond, 0):
		return b, fmt.Errorf("a budget of %v redeliveries a second: want a number above 0, or 0 "+
			"for %v", b.PerSecond, defaultPerSecond)
	case b.Burst != 0 && !(b.Burst >= 1) || math.IsInf(b.Burst, 0):
		return b, fmt.Errorf("a burst of %v redeliveries: want 1 or more, or 0 for %v", b.Burst, defaultBurst)
	}
	b.Share = cmp.Or(b.Share, defaultShare)
	b.PerSecond = cmp.Or(b.PerSecond, defaultPerSecond)
	b.Burst = cmp.Or(b.Burst, defaultBurst)
	return b, nil
}

// budget is the state of a Budget.
type budget struct {
	Budget
	bucket  rate.Bucket
	awaited bool          // at the last dispatch an item had to wait for a token
	due     time.Duration // time of this token, if awaited is set
	waits   uint64        // waits of items for a token, one for each attempt
}

func newBudget(b Budget) budget {
	return budget{Budget: b, bucket: rate.NewBucket(b.PerSecond, b.Burst)}
}

func (p *budget) bounded() bool { return p.Share >= 0 }

// earn adds Share tokens for a delivery by attempt a. If a took a token, it returns that one, too.
func (p *budget) earn(a *attempt, now time.Duration) {
	p.bucket.Add(now, max(0, p.Share))
	if a.tookToken {
		p.bucket.Add(now, 1)
	}
}

// refund returns the token that attempt a took to the bucket, because a has ended as neither
// delivered nor failed (example: the worker was full). The next attempt of the item then takes a
// token again. There is one exception: an item that already waits for this attempt, in the queue of
// items that need no token, takes none.
func (p *budget) refund(a *attempt, now time.Duration) {
	if a.tookToken {
		a.tookToken = false
		a.item.needsToken = a.item.needsToken || a.item.state != inRetry
		p.bucket.Add(now, 1)
	}
}

// outOfTokens reports whether the bucket has no token for a retry. If so, it marks the first
// maxScan items that wait for a token, and counts each wait once, for BudgetStatus.
func (b *backlog) outOfTokens() bool {
	p := &b.budget
	if !p.bounded() {
		return false
	}
	wait := p.bucket.Wait(b.now, 1)
	if wait == 0 {
		return false
	}
	p.awaited, p.due = true, b.now+min(wait, maxWait)
	for i := range min(b.retryWithToken.ready.len(), maxScan) {
		if it := b.retryWithToken.ready.at(i); !it.awaitsToken {
			it.awaitsToken = true
			p.waits++
		}
	}
	return true
}

// takeToken takes a token from the bucket for attempt a, which retries a failed item.
func (p *budget) takeToken(a *attempt, now time.Duration) {
	a.tookToken = true
	p.bucket.Take(now, 1)
}

// tokenAt returns the time of the next token, and false if no item waits for one. This time is in
// the past if the Tick for it is late.
func (p *budget) tokenAt() (at time.Duration, ok bool) { return p.due, p.awaited }

// BudgetStatus is a snapshot of the redelivery budget.
type BudgetStatus struct {
	Tokens  float64 // redeliveries that may be sent now; -1: there is no bound
	Waiting int     // items that wait for a token now, among the first in the queue
	Waited  uint64  // waits of items for a token since the start, one for each attempt
}

func (b *backlog) budgetStatus() BudgetStatus {
	p := &b.budget
	if !p.bounded() {
		return BudgetStatus{Tokens: -1}
	}
	s := BudgetStatus{Tokens: max(0, p.bucket.Tokens(b.now)), Waited: p.waits}
	if p.awaited {
		for i := range b.retryWithToken.ready.len() {
			if b.retryWithToken.ready.at(i).awaitsToken {
				s.Waiting++
			}
		}
	}
	return s
}
