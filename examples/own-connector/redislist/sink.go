package redislist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/redis/go-redis/v9"
)

// Sink returns the sink's entry in the list of components.
func Sink() stream.Component {
	return stream.Component{
		Role: stream.SinkRole, Name: "redis_list",
		Options: func() any { return new(Options) },
		New: func(o any, h stream.Host) (any, error) {
			options := o.(*Options)
			client, err := options.client()
			return &sink{key: options.Key, client: client, host: h}, err
		},
	}
}

// sink appends records to a list.
type sink struct {
	key    string
	client *redis.Client
	host   stream.Host
}

// workers is the number of workers. They deliver concurrently, each with a window of its own.
const workers = 2

// Open implements stream.Sink.
func (s *sink) Open(ctx context.Context, o stream.SinkOptions) error {
	if err := s.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis %s: %w", s.client.Options().Addr, err)
	}
	var lanes []stream.Lane
	for i := range workers {
		name := fmt.Sprintf("%s/%s #%d", s.client.Options().Addr, s.key, i+1)
		lanes = append(lanes, stream.Lane{Name: name, Worker: s})
	}
	o.Lanes(lanes)
	return nil
}

// Close implements stream.Sink.
func (s *sink) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return err
	}
	return nil
}

// remember is the time for which Redis keeps the marker of a stored batch.
const remember = time.Hour

// push appends the values of a batch and sets a marker. If the marker exists, an earlier attempt
// has stored the batch, and push appends nothing.
var push = redis.NewScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'list' and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a list')
end
if not redis.call('SET', KEYS[2], 1, 'NX', 'EX', ARGV[1]) then return 0 end
for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
return 1`)

// Deliver implements stream.Worker.
func (s *sink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	values := []any{int(remember.Seconds())}
	for _, i := range b.AppendKept(nil) {
		values = append(values, b.Text(i))
	}
	if len(values) == 1 {
		return stream.Report{}, nil
	}
	taken, err := push.Run(ctx, s.client, []string{s.key, s.key + ":penstock:" + b.ID()}, values...).Int()
	if err == nil && taken == 0 {
		s.host.Count("batches_known", 1)
	}
	return stream.Report{}, outcome(err)
}

// outcome returns the outcome of a delivery that failed with err. A plain error is retried.
func outcome(err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	switch word, _, _ := strings.Cut(answer.Error(), " "); word {
	case "WRONGTYPE", "NOAUTH", "WRONGPASS", "NOPERM":
		return &stream.Misconfigured{Err: err}
	case "OOM", "BUSY":
		return &stream.Throttled{Err: err}
	}
	return err
}
