package kafka

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/stream"
)

var compressions = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// SinkOptions are the options of the sink.
type SinkOptions struct {
	Connection
	Topic      expr.Text            `yaml:"topic" required:"true" doc:"name of the topic; a text that is no such name is an expression"`
	Key        expr.Text            `yaml:"key" doc:"expression of the key, which determines the partition; empty or null: none"`
	Headers    map[string]expr.Text `yaml:"headers" doc:"expressions of the headers, by name; null leaves a header out"`
	Format     string               `yaml:"format" enum:"json,raw" doc:"form of the value: an object of the fields, or the record's text"`
	Acks       string               `yaml:"acks" enum:"all" doc:"all: every replica in sync has a record before it counts as delivered"`
	Compress   string               `yaml:"compress" enum:"none,gzip,snappy,lz4,zstd" doc:"compression of batches of records"`
	BatchBytes stream.Size          `yaml:"batch_bytes" doc:"maximum bytes of a batch to one partition, and of a record"`

	Transactional   bool   `yaml:"transactional" doc:"exactly once behind a source kafka: its offsets and the records in one transaction"`
	DeadLetterTopic string `yaml:"dead_letter_topic" doc:"topic that also gets the dead letters, in these transactions"`

	topic   *expr.Program // nil: Topic is a name
	key     *expr.Program // nil: none
	headers []expr.Named  // sorted by name
}

const (
	minBatchBytes = 1 << 10
	maxBatchBytes = 512 << 20
)

// DefaultSinkOptions returns options that send JSON objects.
func DefaultSinkOptions() *SinkOptions {
	return &SinkOptions{Connection: defaultConnection(), Format: messages.JSON, Acks: "all",
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
		return stream.OptionErrorf("topic", "is empty: name a topic, or write an expression")
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	if err := stream.CheckRange("batch_bytes", o.BatchBytes, minBatchBytes, maxBatchBytes); err != nil {
		return err
	}
	if err := messages.CheckHeaders(o.Headers); err != nil {
		return err
	}
	if _, ok := o.Headers[""]; ok {
		return stream.OptionErrorf("headers", "has an empty name")
	}
	return o.validateDeadLetters()
}

func (o *SinkOptions) validateDeadLetters() error {
	switch topic := o.DeadLetterTopic; {
	case topic == "":
		return nil
	case !o.Transactional:
		return stream.OptionErrorf("dead_letter_topic", "needs transactional: true; without it, "+
			"dead letters are in files, see dead_letters")
	case topic == string(o.Topic):
		return stream.OptionErrorf("dead_letter_topic", "%q is the topic of the sink; name "+
			"another topic", topic)
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
	if o.topic = nil; checkTopic(string(o.Topic)) != nil {
		if o.topic, err = o.Topic.Compile("topic", in); err != nil {
			return err
		}
	}
	if o.key, err = o.Key.Compile("key", in); err != nil {
		return err
	}
	o.headers, err = expr.CompileNamed("headers", o.Headers, in)
	return err
}

// target returns the sink's topic or topic expression for messages.
func (o *SinkOptions) target() string {
	if o.topic != nil {
		return fmt.Sprintf("topics %s", o.Topic)
	}
	return string(o.Topic)
}
