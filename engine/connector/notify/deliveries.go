package notify

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

// Deliveries implements stream.ParkingSink.
func (s *Sink) Deliveries() stream.DeliveryStore {
	return &Deliveries{
		store:    s.send.store,
		schedule: s.o.schedule,
		changed:  s.send.recheck,
	}
}

// Deliveries lists and changes the deliveries in a [parked.Store], for commands and the API. It
// implements stream.DeliveryStore.
type Deliveries struct {
	store    *parked.Store
	schedule parked.Schedule
	changed  func(ctx context.Context, host string) // called after a change; may be nil
}

// OpenDeliveries implements stream.ParkingOptions.
func (o *Options) OpenDeliveries(
	ctx context.Context, stateDir string,
) (stream.OpenDeliveryStore, error) {
	store, err := parked.OpenExisting(ctx, parked.Options{
		Path: filepath.Join(stateDir, parked.FileName), MaxBytes: int64(o.Parked.Bytes),
	})
	if err != nil {
		return nil, err
	}
	return &Deliveries{store: store, schedule: o.schedule}, nil
}

// Close implements stream.OpenDeliveryStore.
func (d *Deliveries) Close() error { return d.store.Close() }

// Counts implements stream.OpenDeliveryStore.
func (d *Deliveries) Counts(ctx context.Context) (stream.ParkedCounts, error) {
	t, err := d.store.Totals(ctx)
	return countsOf(t), err
}

func countsOf(t parked.Totals) stream.ParkedCounts {
	return stream.ParkedCounts{
		Waiting:   t.Waiting,
		Exhausted: t.Exhausted,
		Delivered: t.Done,
		Dead:      t.Dead,
		Cancelled: t.Cancelled,
	}
}

// Delivery implements stream.DeliveryStore.
func (d *Deliveries) Delivery(ctx context.Context, key string) (stream.Delivery, error) {
	return d.find(ctx, key, nil)
}

// DeliveryOf implements stream.DeliveryStore.
func (d *Deliveries) DeliveryOf(
	ctx context.Context, key string, owner stream.DeliveryOwner,
) (stream.Delivery, error) {
	return d.find(ctx, key, func(p *parked.Delivery) bool {
		u, err := url.Parse(p.URL)
		return p.Signer != "" && p.Signer == owner.Name ||
			err == nil && slices.Contains(owner.Hosts, u.Hostname())
	})
}

// find returns the newest delivery with the given key for which wanted returns true. A nil wanted
// selects all.
func (d *Deliveries) find(
	ctx context.Context, key string, wanted func(*parked.Delivery) bool,
) (stream.Delivery, error) {
	found, err := d.store.Find(ctx, key, wanted)
	if err != nil {
		return stream.Delivery{}, translated(err)
	}
	history, err := d.store.History(ctx, found.ID)
	out := d.shown(found)
	out.Attempts = attemptsOf(history)
	for i := range out.Attempts {
		if e := out.Attempts[i].Event; e != parked.Skip.String() && e != parked.Retry.String() &&
			e != parked.Cancel.String() {
			out.Last = &out.Attempts[i]
		}
	}
	return out, err
}

// List implements stream.DeliveryStore.
func (d *Deliveries) List(ctx context.Context, f stream.DeliveryFilter) ([]stream.Delivery, error) {
	if f.State != "" {
		if state, err := parked.ParseState(f.State); err != nil || state == parked.InFlight {
			return nil, fmt.Errorf(
				"%w: state is waiting, exhausted, done, dead or cancelled", stream.ErrBadFilter,
			)
		}
	}
	found, err := d.store.List(
		ctx, parked.Filter{Host: f.Host, State: f.State, After: f.After, Limit: f.Limit},
	)
	out := make([]stream.Delivery, len(found))
	for i := range found {
		out[i] = d.shown(found[i])
	}
	return out, err
}

// Retry implements stream.DeliveryStore.
func (d *Deliveries) Retry(ctx context.Context, key string) (stream.Delivery, error) {
	return d.operate(ctx, key, d.store.Retry)
}

// Cancel implements stream.DeliveryStore.
func (d *Deliveries) Cancel(ctx context.Context, key string) (stream.Delivery, error) {
	return d.operate(ctx, key, d.store.Cancel)
}

func (d *Deliveries) operate(
	ctx context.Context, key string, do func(context.Context, int64, time.Time) error,
) (stream.Delivery, error) {
	found, err := d.store.Find(ctx, key, nil)
	if err == nil {
		err = do(context.WithoutCancel(ctx), found.ID, time.Now())
	}
	if err != nil {
		return stream.Delivery{}, translated(err)
	}
	if d.changed != nil {
		d.changed(context.WithoutCancel(ctx), found.Host)
	}
	return d.Delivery(ctx, key)
}

// translated returns err as the corresponding error of package stream, if there is one.
func translated(err error) error {
	if _, ok := errors.AsType[*parked.NotFoundError](err); ok {
		return stream.ErrNoDelivery
	}
	if refused, ok := errors.AsType[*parked.TransitionError](err); ok {
		return fmt.Errorf("%w: %w", stream.ErrDeliveryEnded, refused)
	}
	return err
}

// shown returns a delivery without those parts that may contain secrets.
func (d *Deliveries) shown(p *parked.Delivery) stream.Delivery {
	out := stream.Delivery{
		ID:      p.ID,
		Key:     p.Key,
		Record:  p.RecordID(),
		Host:    p.Host,
		URL:     withoutQuery(p.URL),
		State:   p.State.String(),
		Planned: p.Schedule(d.schedule).Attempts(),
		Parked:  p.Row.Start.UTC(),
	}
	if p.Polled() {
		o := p.Operation
		out.Operation = &stream.Operation{
			Location: withoutQuery(o.Location),
			Accepted: o.Accepted.UTC(),
			Polls:    o.Polls,
			Found:    o.Found,
		}
	}
	switch {
	case p.State.Ended():
		out.Ended = p.Ended.UTC()
	case p.State == parked.Waiting:
		out.Next = p.Due.UTC()
		if !p.Polled() && p.Attempt < out.Planned {
			out.Attempt = p.Attempt + 1
		}
	}
	return out
}

// withoutQuery returns a URL without its query, which may contain secrets.
func withoutQuery(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
