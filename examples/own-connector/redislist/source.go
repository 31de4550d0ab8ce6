package redislist

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/redis/go-redis/v9"
)

// Source returns the source's entry in the list of components.
func Source() stream.Component {
	return stream.Component{
		Role: stream.SourceRole, Name: "redis_list",
		Options: func() any { return new(Options) },
		New: func(o any, h stream.Host) (any, error) {
			options := o.(*Options)
			client, err := options.client()
			routes := h.(stream.SourceHost).Routes
			return &source{key: options.Key, client: client, routes: routes, settled: make(map[string]int64)}, err
		},
	}
}

// source reads a list from its head, and removes records that every route has settled (delivered,
// dead-lettered or dropped).
//
// The position of a record is its number in the list, counted from 1. Removed records count as
// well. The hash KEY:penstock has the number of removed records (base). Positions therefore stay
// the same while the list shrinks. Example: after 100 records were removed, the first record in the
// list has the position 101.
type source struct {
	key    string
	client *redis.Client
	routes func() []string

	mu      sync.Mutex       // guards settled
	settled map[string]int64 // by route
}

// meta is the key of the hash that has the number of removed records.
func (s *source) meta() string { return s.key + ":penstock" }

// Open implements stream.Source.
func (s *source) Open(ctx context.Context, o stream.OpenOptions) (stream.Reader, error) {
	addr := s.client.Options().Addr
	if err := s.client.HSetNX(ctx, s.meta(), "id", rand.Text()).Err(); err != nil {
		return nil, fmt.Errorf("redis %s: %w", addr, err)
	}
	id, err := s.client.HGet(ctx, s.meta(), "id").Result()
	if err != nil {
		return nil, fmt.Errorf("redis %s: %w", addr, err)
	}
	r := &reader{s: s, once: o.Once, route: o.Route}
	r.part = &stream.Partition{ID: "redis-" + id, Name: addr + "/" + s.key}
	if m, known := o.Resume(r.part.ID); known {
		r.next, r.above = m.Watermark.Num, m.Above
	}
	return r, nil
}

// reader reads for one route.
type reader struct {
	s     *source
	part  *stream.Partition
	route string
	once  bool
	next  int64          // position of the last record that was read or skipped
	above []stream.Range // ranges after next that are already settled
}

// poll is the time between two reads of an empty list.
const poll = 100 * time.Millisecond

// Read implements stream.Reader.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		if err := r.fill(ctx, b); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		switch {
		case len(b.Spans) > 0:
			return nil
		case r.once:
			return io.EOF
		}
		timer.Reset(poll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// peek returns base and the records after a position, atomically.
var peek = redis.NewScript(`
local base = tonumber(redis.call('HGET', KEYS[2], 'base') or 0)
local from = math.max(tonumber(ARGV[1]) - base, 0)
return {base, redis.call('LRANGE', KEYS[1], from, from + ARGV[2] - 1)}`)

// chunk is the maximum number of records that one command reads.
const chunk = 256

// fill reads one batch. The batch ends before the next settled range.
func (r *reader) fill(ctx context.Context, b *stream.Batch) error {
	for len(r.above) > 0 && r.above[0].From.Num <= r.next {
		r.next = max(r.next, r.above[0].To.Num)
		r.above = r.above[1:]
	}
	from := r.next
	for {
		n := min(int64(chunk), int64(b.Limits().Records-b.Origins))
		if len(r.above) > 0 {
			n = min(n, r.above[0].From.Num-r.next)
		}
		if n <= 0 || b.Full() {
			break
		}
		got, err := peek.Run(ctx, r.s.client, []string{r.s.key, r.s.meta()}, r.next, n).Slice()
		if err != nil {
			return err
		}
		base, values := got[0].(int64), got[1].([]any)
		if len(values) == 0 {
			break
		}
		r.next = max(r.next, base) // another program has removed the records up to base
		for _, v := range values {
			if b.Full() {
				break
			}
			r.add(b, v.(string))
		}
	}
	if b.Origins > 0 {
		span := stream.Span{Part: r.part, Bytes: len(b.Data)}
		span.From.Num, span.To.Num = from, r.next
		b.Spans = append(b.Spans, span)
	}
	return nil
}

// add appends one record, followed by a line end.
func (r *reader) add(b *stream.Batch, text string) {
	r.next++
	b.Records = append(b.Records, stream.Record{
		Off: uint32(len(b.Data)), Len: uint32(len(text)), Origin: stream.Position{Num: r.next},
	})
	b.Data = append(append(b.Data, text...), '\n')
	b.Origins++
	b.Added++
}

// trim removes the records up to a position.
var trim = redis.NewScript(`
local base = tonumber(redis.call('HGET', KEYS[2], 'base') or 0)
local to = tonumber(ARGV[1])
if to > base then
  redis.call('LTRIM', KEYS[1], to - base, -1)
  redis.call('HSET', KEYS[2], 'base', ARGV[1])
end`)

// Commit implements stream.Reader. It removes the records that every route has settled.
func (r *reader) Commit(ctx context.Context, marks []stream.Mark) error {
	s := r.s
	s.mu.Lock()
	for _, m := range marks {
		if m.Part.ID == r.part.ID {
			s.settled[r.route] = max(s.settled[r.route], m.Watermark.Num)
		}
	}
	to := s.settled[r.route]
	for _, route := range s.routes() {
		to = min(to, s.settled[route]) // 0 for a route that has not committed yet
	}
	s.mu.Unlock()
	err := trim.Run(ctx, s.client, []string{s.key, s.meta()}, to).Err()
	if err == redis.Nil {
		return nil // the script returns nothing
	}
	return err
}

// Close implements stream.Reader.
func (r *reader) Close() error { return nil }
