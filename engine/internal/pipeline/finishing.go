package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/stream"
)

// finishing is a partition that at least one route has settled: the route has delivered,
// dead-lettered or dropped all data of the partition. When all routes have settled it, the engine
// calls the source's method Finish, which may, for example, rename the file.
type finishing struct {
	part     stream.Partition
	done     map[*slot]bool
	state    backoff.State
	next     time.Time // earliest time of the next Finish
	finished bool
}

// finish is called when route r has settled all data of the partitions in settled, and the
// checkpoint has stored this durably. It calls the source's method Finish for each partition that
// every route has settled. It returns the finished partitions of route r. These include partitions
// that the source has finished in an earlier call.
func (p *pipe) finish(ctx context.Context, r *slot, settled ...stream.Partition) []stream.Partition {
	var out []stream.Partition
	for _, f := range p.due(r, settled, time.Now()) {
		if p.finisher != nil {
			if err := p.finisher.Finish(ctx, f.part); err != nil {
				p.notFinished(f, err)
				continue
			}
		}
		p.mu.Lock()
		f.finished = true
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.order[:0]
	for _, id := range p.order {
		f := p.finishing[id]
		if f.finished && f.done[r] {
			out = append(out, f.part)
			delete(f.done, r)
		}
		if f.finished && len(f.done) == 0 {
			delete(p.finishing, id)
			continue
		}
		kept = append(kept, id)
	}
	p.order = kept
	return out
}

// due notes that route r has settled the partitions in settled. It returns the partitions for which
// the caller may call Finish now, and reserves them for the caller: other calls of due do not return
// them for the time finishClaim.
func (p *pipe) due(r *slot, settled []stream.Partition, now time.Time) []*finishing {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range settled {
		f := p.finishing[part.ID]
		if f == nil {
			f = &finishing{part: part, done: make(map[*slot]bool)}
			p.finishing[part.ID] = f
			p.order = append(p.order, part.ID)
		}
		f.done[r] = true
	}
	var out []*finishing
	for _, id := range p.order {
		f := p.finishing[id]
		if !f.finished && len(f.done) == len(p.slots) && !now.Before(f.next) {
			f.next = now.Add(finishClaim)
			out = append(out, f)
		}
	}
	return out
}

// finishClaim is the time for which only one route may call Finish for a partition.
const finishClaim = time.Minute

var finishBackoff = backoff.Exponential(250*time.Millisecond, 2, 30*time.Second).Full()

func (p *pipe) notFinished(f *finishing, err error) {
	p.mu.Lock()
	wait, next, _ := finishBackoff.Next(f.state, nil)
	f.state, f.next = next, time.Now().Add(wait)
	p.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		p.log.Warn("a delivered file could not be finished; retrying", "file",
			f.part.Name, "again_in", wait, "error", err)
	}
}
