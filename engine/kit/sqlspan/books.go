package sqlspan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// Books is what the lanes of a sink share of its route's ledger: its name, the epoch that Load has taken, and why the route has
// to end. It is safe for concurrent use once Open was called.
type Books struct {
	Ledger string // which of those in the tables is the route's

	host  stream.Host
	once  bool
	epoch atomic.Int64 // 0: not loaded
	lost  chan error   // takes one: why the route has to end
}

// NewBooks returns books without a ledger. The host gets what Load has to say.
func NewBooks(h stream.Host) *Books { return &Books{host: h, lost: make(chan error, 1)} }

// Open names the ledger: as the config does, "": by pipeline and route.
func (b *Books) Open(o stream.SinkOptions, name string) {
	b.once, b.Ledger = o.Once, LedgerName(o, name)
}

// LedgerName is the ledger's name: as the config has it, "": by pipeline and route.
func LedgerName(o stream.SinkOptions, configured string) string {
	return cmp.Or(configured, o.Pipeline+"/"+o.Route)
}

// Watch returns why the route has to end, because another process has taken its ledger over, or nil when ctx is over.
func (b *Books) Watch(ctx context.Context) error {
	select {
	case err := <-b.lost:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Note lets an error that ends the route do so, and returns it.
func (b *Books) Note(err error) error {
	if last := Ends(err); last != nil {
		select {
		case b.lost <- last:
		default: // one is enough
		}
	}
	return err
}

// Take makes an epoch the process's own.
func (b *Books) Take(epoch int64) { b.epoch.Store(epoch) }

// Check returns a FencedError where the epoch that the database has is not the process's own.
func (b *Books) Check(seen int64) error {
	if own := b.epoch.Load(); own != seen {
		return &FencedError{Ledger: b.Ledger, Own: own, Seen: seen}
	}
	return nil
}

// CheckFormat refuses a ledger of another form.
func (b *Books) CheckFormat(format int64) error { return CheckFormat(b.Ledger, format) }

// CheckFormat refuses a ledger whose tables are of another form than [Format].
func CheckFormat(ledger string, format int64) error {
	if format == Format {
		return nil
	}
	return fmt.Errorf("the ledger %q is of format %d, and this penstock knows %d: use the version that wrote it, or a newer one",
		ledger, format, Format)
}

// The bounds of what is done for the ledger alone.
const (
	LoadAttempt = 30 * time.Second // one attempt of Load
	BookBound   = 30 * time.Second // one fold, or one storing of spans
	loadOnce    = time.Minute      // all attempts of a finite run
)

var loadBackoff = backoff.Exponential(250*time.Millisecond, 2, 10*time.Second).Full()

// Load asks until attempt succeeds, ever more rarely, while its errors are transient. It waits so for a server that is not there yet.
func (b *Books) Load(
	ctx context.Context, attempt func(ctx context.Context) ([]stream.Mark, error), transient func(error) bool,
) ([]stream.Mark, error) {
	if b.once {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, loadOnce, errors.New("the database could not be reached in time"))
		defer cancel()
	}
	o := retry.Options{Policy: loadBackoff, MaxAttempts: -1}
	o.Classify = func(err error) retry.Action {
		if Ends(err) != nil || !transient(err) {
			return retry.Fail
		}
		return retry.Retry
	}
	o.OnEvent = func(_ context.Context, e retry.Event) {
		if e.Kind == retry.AttemptFailed && e.Action == retry.Retry {
			b.host.Log().Warn("the database does not say yet what it holds; it is asked again", "again_in", e.Wait, "error", e.Err)
		}
	}
	return retry.Value(ctx, attempt, o)
}
