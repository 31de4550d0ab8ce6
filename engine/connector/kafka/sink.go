package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/engine/kit/verdict"
	"github.com/penstock-io/penstock/stream"
)

// Sink returns the sink's entry in the list of components.
func Sink() stream.Component {
	return stream.NewComponent(stream.SinkRole, "kafka", DefaultSinkOptions, NewSink)
}

// TopicSink writes to topics with an idempotent producer. It implements stream.Sink.
type TopicSink struct {
	o      SinkOptions
	host   stream.Host
	log    *clientLog
	client *kgo.Client
	makers sync.Pool // of *messageMaker

	recreated chan string // name of a topic that was deleted and created again; buffer of 1
	closed    chan struct{}
	closing   sync.Once
}

// sinkCounters are the counters that are shown, with the value 0, even before the first delivery.
var sinkCounters = []string{"records_sent", "bytes_sent", "records_refused"}

// NewSink returns a sink. It does not connect.
func NewSink(o SinkOptions, h stream.Host) (*TopicSink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.topic == nil && o.key == nil && o.headers == nil { // Shape was not called
		if err := o.compile(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	s := &TopicSink{o: o, host: h, log: newClientLog(h.Log()),
		recreated: make(chan string, 1), closed: make(chan struct{})}
	s.makers.New = func() any { return newMessageMaker(&s.o) }
	for _, name := range sinkCounters {
		h.Count(name, 0)
	}
	return s, nil
}

// producerLinger is the time for which the producer keeps a record to send it together with more
// records of its partition.
const producerLinger = 2 * time.Millisecond

// maxBuffered is the limit on the bytes in the producer, unless two batches (`batch_bytes`) are
// larger. At the limit, further deliveries wait.
const maxBuffered = 64 << 20

// Open implements stream.Sink: it checks that the brokers answer, and that the topic exists if its
// name is fixed.
func (s *TopicSink) Open(ctx context.Context, o stream.SinkOptions) error {
	_, err := s.open(ctx, o, s, kgo.AllowIdempotentProduceCancellation())
	if err == nil {
		s.host.Go("kafka/topics", s.watchTopics)
	}
	return err
}

// watchTopics makes the engine open the sink again when a topic was deleted and created again. The
// producer does not write to the new topic: the new topic has another id, and no sequence numbers
// of this producer.
func (s *TopicSink) watchTopics(ctx context.Context) error {
	select {
	case topic := <-s.recreated:
		return &stream.ReopenError{Err: fmt.Errorf("topic %q was deleted and created again", topic)}
	case <-s.closed:
	case <-ctx.Done():
	}
	return nil
}

// reportRecreated informs watchTopics if a record has failed because its topic was created again.
func (s *TopicSink) reportRecreated(d *delivery) {
	i := slices.IndexFunc(d.fates, func(err error) bool {
		return errors.Is(err, kerr.UnknownTopicID)
	})
	if i < 0 {
		return
	}
	select {
	case s.recreated <- d.records[i].Topic:
	default: // another topic was reported already
	}
}

// open implements Open with the worker w and a further option of the producer. It returns the id of
// the brokers' cluster.
func (s *TopicSink) open(
	ctx context.Context, o stream.SinkOptions, w stream.Worker, more kgo.Opt,
) (cluster string, err error) {
	if cluster, err = s.check(ctx); err != nil {
		return "", err
	}
	if s.client, err = s.producer(more); err != nil {
		return "", err
	}
	o.Lanes([]stream.Lane{{Name: strings.Join(s.o.Brokers, ",") + "/" + s.o.target(), Worker: w}})
	return cluster, nil
}

// producer returns a client that produces according to the options. It connects at first use.
func (s *TopicSink) producer(more ...kgo.Opt) (*kgo.Client, error) {
	options, err := s.o.Connection.options(s.log)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(append(options,
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(compressions[s.o.Compress]),
		kgo.ProducerBatchMaxBytes(int32(s.o.BatchBytes)), kgo.ProducerLinger(producerLinger),
		kgo.BrokerMaxWriteBytes(max(2*int32(s.o.BatchBytes), 100<<20)),
		kgo.MaxBufferedBytes(int(max(maxBuffered, 2*s.o.BatchBytes))), kgo.MaxBufferedRecords(1<<20),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.UnknownTopicRetries(2),
		kgo.MetadataMinAge(time.Second),
	), more...)...)
}

// check checks that the topics named in the options exist, and returns the id of the brokers'
// cluster.
func (s *TopicSink) check(ctx context.Context) (cluster string, err error) {
	var topics []string
	if s.o.topic == nil {
		topics = append(topics, string(s.o.Topic))
	}
	if s.o.DeadLetterTopic != "" {
		topics = append(topics, s.o.DeadLetterTopic)
	}
	m, err := s.o.metadata(ctx, s.log, topics...)
	return m.Cluster, err
}

// Close implements stream.Sink.
func (s *TopicSink) Close() error {
	s.closing.Do(func() { close(s.closed) })
	if s.client != nil {
		s.client.Close()
	}
	return nil
}

// Deliver implements stream.Worker. It returns when the brokers have answered for each record, or
// when ctx is done. The producer has copies of the records, and may still send them after a
// canceled Deliver has returned.
func (s *TopicSink) Deliver(ctx context.Context, a stream.Attempt) (stream.Report, error) {
	b := a.Value
	kept := b.AppendKept(nil)
	if len(kept) == 0 {
		return stream.Report{}, nil
	}
	d := &delivery{
		records: make([]kgo.Record, len(kept)), fates: make([]error, len(kept)), open: len(kept),
		done: make(chan struct{}),
	}
	bytes := s.produce(ctx, b, kept, d)
	select {
	case <-d.done:
	case <-ctx.Done():
		return stream.Report{}, context.Cause(ctx)
	}
	s.reportRecreated(d)
	err := settle(b, kept, d.fates, s.o.topic != nil)
	verdict.Count(s.host, err, len(kept), bytes)
	return stream.Report{}, err
}

// delivery collects the outcomes of a batch's records. The producer may still use it after a
// canceled Deliver has returned.
type delivery struct {
	records []kgo.Record // one message for each kept record

	mu    sync.Mutex          // guards the fields below until done is closed
	index map[*kgo.Record]int // index of a message in records; made at the first failure
	fates []error             // by index in records
	open  int
	done  chan struct{}
}

// finish stores the outcome of r, one of d.records. After the last outcome, it closes d.done.
func (d *delivery) finish(r *kgo.Record, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.fates[d.indexOf(r)] = err
	}
	if d.open--; d.open == 0 {
		close(d.done)
	}
}

func (d *delivery) indexOf(r *kgo.Record) int {
	if d.index == nil {
		d.index = make(map[*kgo.Record]int, len(d.records))
		for k := range d.records {
			d.index[&d.records[k]] = k
		}
	}
	return d.index[r]
}

// produce passes the records to the producer as messages, which are copies. A record that cannot
// become a message fails at once. produce returns the total size of the messages' values.
func (s *TopicSink) produce(ctx context.Context, b *stream.Batch, kept []int, d *delivery) (bytes int64) {
	t := s.makers.Get().(*messageMaker)
	defer s.makers.Put(t)
	t.begin(b)
	finish := d.finish // one function for all records
	for k, i := range kept {
		r := &d.records[k]
		if err := t.fill(r, b, i); err != nil {
			finish(r, &messages.RecordError{Err: err})
			continue
		}
		bytes += int64(len(r.Value))
		s.client.Produce(ctx, r, finish)
	}
	return bytes
}

// messageMaker makes Kafka messages from records. Only one goroutine at a time may use it.
type messageMaker struct {
	*messages.Maker
	o     *SinkOptions
	topic *expr.Evaluator // nil if the topic is fixed
	key   *expr.Evaluator // nil if the messages have no key
}

func newMessageMaker(o *SinkOptions) *messageMaker {
	return &messageMaker{
		Maker: messages.NewMaker(o.Format, o.headers), o: o,
		topic: expr.NewEvaluator(o.topic), key: expr.NewEvaluator(o.key),
	}
}

func (t *messageMaker) begin(b *stream.Batch) {
	t.Begin(b)
	t.topic.Begin(b)
	t.key.Begin(b)
}

// fill sets r to the message for record i of the batch b. r shares no memory with b.
func (t *messageMaker) fill(r *kgo.Record, b *stream.Batch, i int) error {
	r.Topic = string(t.o.Topic)
	var err error
	if t.topic != nil {
		name, err := t.topic.AppendText(nil, i)
		if err == nil {
			err = checkTopic(string(name))
		}
		if err != nil {
			return fmt.Errorf("topic: %w", err)
		}
		r.Topic = string(name)
	}
	if t.key != nil {
		if r.Key, err = t.key.AppendText(nil, i); err != nil {
			return fmt.Errorf("key: %w", err)
		}
	}
	err = t.Headers(i, func(name string, value []byte) error {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: value})
		return nil
	})
	if err != nil {
		return err
	}
	r.Value = t.Content(i) // nil is a tombstone
	return nil
}
