package kafka

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// The formats of a value.
const (
	formatJSON = "json" // an object of the fields; {"message":"..."} if the record was not parsed
	formatRaw  = "raw"  // the record's text, or its field message if it was parsed and has one
)

var compressions = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// SinkOptions are the options of the sink.
type SinkOptions struct {
	Connection
	Topic      expr.Text            `yaml:"topic" required:"true" doc:"name of the topic; a text that is no such name is an expression"`
	Key        expr.Text            `yaml:"key" doc:"expression of the key; records of a key stay in one partition; empty or null: none"`
	Headers    map[string]expr.Text `yaml:"headers" doc:"expressions of the headers, by name; null leaves a header out"`
	Format     string               `yaml:"format" enum:"json,raw" doc:"of the value: an object of the fields, or the record's text"`
	Acks       string               `yaml:"acks" enum:"all" doc:"all: every replica in sync has a record before it counts as delivered"`
	Compress   string               `yaml:"compress" enum:"none,gzip,snappy,lz4,zstd" doc:"of batches of records"`
	BatchBytes stream.Size          `yaml:"batch_bytes" doc:"most bytes of a batch to one partition, and of a record"`

	Transactional   bool   `yaml:"transactional" doc:"exactly once behind a source kafka: its offsets and the records in one transaction"`
	DeadLetterTopic string `yaml:"dead_letter_topic" doc:"topic that also gets the dead letters, in these transactions"`

	topic   *expr.Program // nil: Topic is a name
	key     *expr.Program // nil: none
	headers []header      // sorted by name
}

type header struct {
	name  string
	value *expr.Program
}

const (
	minBatchBytes = 1 << 10
	maxBatchBytes = 512 << 20
	maxHeaders    = 100
)

// DefaultSinkOptions returns options that send JSON objects.
func DefaultSinkOptions() *SinkOptions {
	return &SinkOptions{Connection: defaultConnection(), Format: formatJSON, Acks: "all",
		Compress: "snappy", BatchBytes: 1_000_000}
}

// PreferredBatch implements stream.Preferred.
func (o *SinkOptions) PreferredBatch() stream.BatchLimits {
	return stream.BatchLimits{Bytes: 1 << 20, Records: 10_000}
}

// Validate returns an error for the first wrong option. It reads the files of tls.
func (o *SinkOptions) Validate() error {
	if err := o.Connection.validate(); err != nil {
		return err
	}
	if strings.TrimSpace(string(o.Topic)) == "" {
		return wrong("topic", "is empty: name a topic, or write an expression")
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	if o.BatchBytes < minBatchBytes || o.BatchBytes > maxBatchBytes {
		return wrong("batch_bytes", "is %v, want %v to %v", o.BatchBytes,
			stream.Size(minBatchBytes), stream.Size(maxBatchBytes))
	}
	if len(o.Headers) > maxHeaders {
		return wrong("headers", "has %d names, want at most %d", len(o.Headers), maxHeaders)
	}
	if _, ok := o.Headers[""]; ok {
		return wrong("headers", "has an empty name")
	}
	return o.validateDeadLetters()
}

func (o *SinkOptions) validateDeadLetters() error {
	switch topic := o.DeadLetterTopic; {
	case topic == "":
		return nil
	case !o.Transactional:
		return wrong("dead_letter_topic", "needs transactional: true; without it, dead letters are "+
			"in files, see dead_letters")
	case topic == string(o.Topic):
		return wrong("dead_letter_topic", "%q is the topic of the sink; name another topic", topic)
	default:
		if err := checkTopic(topic); err != nil {
			return &stream.OptionError{Key: "dead_letter_topic", Err: err}
		}
	}
	return nil
}

// Shape implements stream.Shaper. It compiles the expressions.
func (o *SinkOptions) Shape(in stream.Schema) (stream.Schema, error) { return in, o.compile(in) }

func (o *SinkOptions) compile(in stream.Schema) (err error) {
	o.topic, o.key, o.headers = nil, nil, nil
	if checkTopic(string(o.Topic)) != nil {
		if o.topic, err = expr.Value(string(o.Topic), in); err != nil {
			return expr.Option("topic", err)
		}
	}
	if o.Key != "" {
		if o.key, err = expr.Value(string(o.Key), in); err != nil {
			return expr.Option("key", err)
		}
	}
	for name, text := range o.Headers {
		value, err := expr.Value(string(text), in)
		if err != nil {
			return expr.Option("headers."+name, err)
		}
		o.headers = append(o.headers, header{name, value})
	}
	slices.SortFunc(o.headers, func(a, b header) int { return strings.Compare(a.name, b.name) })
	return nil
}

// target returns the sink's topic or topic expression for messages.
func (o *SinkOptions) target() string {
	if o.topic != nil {
		return fmt.Sprintf("topics %s", o.Topic)
	}
	return string(o.Topic)
}
