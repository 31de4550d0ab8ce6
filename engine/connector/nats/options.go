package nats

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Start positions in a stream without a stored position.
const (
	startEarliest = "earliest"
	startLatest   = "latest"
)

// Reactions to messages that were deleted before they were read.
const (
	truncatedStop     = "stop"
	truncatedEarliest = "earliest"
)

// SourceOptions are the options of the source.
type SourceOptions struct {
	Connection
	Stream        string        `yaml:"stream" required:"true" doc:"name of the stream"`
	Subject       string        `yaml:"subject" doc:"read only messages of this subject, which may have wildcards"`
	Durable       string        `yaml:"durable" doc:"consumer that processes share; {route} stands for PIPELINE=ROUTE"`
	Start         string        `yaml:"start" enum:"earliest,latest" doc:"where a new consumer, or a source without a position, starts"`
	Truncated     string        `yaml:"truncated" enum:"stop,earliest" doc:"without durable: reaction if unread messages were deleted"`
	AckWait       time.Duration `yaml:"ack_wait" doc:"for a new consumer: time until others get the messages of a dead process"`
	MaxAckPending int           `yaml:"max_ack_pending" doc:"for a new consumer: maximum unacknowledged messages of all processes"`
	Meta          MetaOptions   `yaml:"meta" doc:"names of fields for subject, sequence, timestamp and headers"`
	Memory        stream.Size   `yaml:"memory" doc:"bytes fetched ahead; then fetching pauses"`
}

// MetaOptions names the fields that the source adds to records. An empty name means no field.
type MetaOptions struct {
	Subject   string `yaml:"subject" doc:"name of a field for the subject; empty: none"`
	Sequence  string `yaml:"sequence" doc:"name of a field for the sequence in the stream; empty: none"`
	Timestamp string `yaml:"timestamp" doc:"name of a field for the time, in RFC 3339 and UTC; empty: none"`
	Headers   string `yaml:"headers" doc:"name of a field for a JSON object of the headers; empty: none"`
}

// Limits of the options.
const (
	minMemory     = 1 << 20
	maxMemory     = 1 << 30
	maxName       = 200
	minAckWait    = time.Second
	maxAckWait    = time.Hour
	maxAckPending = 1_000_000

	defaultAckWait       = 6 * time.Second
	defaultMaxAckPending = 20_000
)

// DefaultSourceOptions returns options that read a stream from its start.
func DefaultSourceOptions() *SourceOptions {
	return &SourceOptions{
		Connection: defaultConnection(), Start: startEarliest, Truncated: truncatedStop,
		AckWait: defaultAckWait, MaxAckPending: defaultMaxAckPending, Memory: 32 << 20,
	}
}

// Validate returns an error for the first wrong option. It reads the files of tls, credentials and
// nkey.
func (o *SourceOptions) Validate() error {
	if err := o.Connection.validate(); err != nil {
		return err
	}
	if err := checkName(o.Stream); err != nil {
		return &stream.OptionError{Key: "stream", Err: err}
	}
	if o.Subject != "" {
		if err := checkSubject(o.Subject, true); err != nil {
			return &stream.OptionError{Key: "subject", Err: err}
		}
	}
	if o.Durable != "" {
		if err := checkName(strings.ReplaceAll(o.Durable, routeMark, "")); err != nil &&
			o.Durable != routeMark {
			return &stream.OptionError{Key: "durable", Err: err}
		}
		if o.Truncated != truncatedStop {
			return stream.OptionErrorf("truncated", "has no effect with durable: the server "+
				"hands out the messages that exist")
		}
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	switch {
	case o.AckWait < minAckWait || o.AckWait > maxAckWait:
		return stream.OptionErrorf("ack_wait", "is %v, want %v to %v", o.AckWait, minAckWait,
			maxAckWait)
	case o.MaxAckPending < 1 || o.MaxAckPending > maxAckPending:
		return stream.OptionErrorf("max_ack_pending", "is %d, want 1 to %d", o.MaxAckPending,
			maxAckPending)
	case o.Durable == "" && o.AckWait != defaultAckWait:
		return stream.OptionErrorf("ack_wait", "needs durable: without it, no message is "+
			"acknowledged at the server")
	case o.Durable == "" && o.MaxAckPending != defaultMaxAckPending:
		return stream.OptionErrorf("max_ack_pending", "needs durable: without it, no message is "+
			"acknowledged at the server")
	case o.Memory < minMemory || o.Memory > maxMemory:
		return stream.OptionErrorf("memory", "is %v, want %v to %v", o.Memory,
			stream.Size(minMemory), stream.Size(maxMemory))
	}
	return o.Meta.fields().Check()
}

const routeMark = "{route}"

// checkName checks the name of a stream or consumer against the rules of JetStream.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > maxName:
		return fmt.Errorf("has %d characters, want at most %d", len(name), maxName)
	}
	for _, c := range name {
		if c <= ' ' || c == 0x7F || strings.ContainsRune(`.*>/\{}`, c) {
			return fmt.Errorf(
				"%q holds %q; names have no space, '.', '*', '>', '/', '\\' or brace", name, c)
		}
	}
	return nil
}

// maxSubject bounds the bytes of a subject.
const maxSubject = 1024

// checkSubject checks a subject. wildcards allows the tokens * and, at the end, >.
func checkSubject(subject string, wildcards bool) error {
	if subject == "" {
		return errors.New("a subject is empty")
	}
	if len(subject) > maxSubject {
		return fmt.Errorf("a subject has %d bytes, want at most %d", len(subject), maxSubject)
	}
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return fmt.Errorf("%q has an empty token: two dots, or one at an end", subject)
		case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c == 0x7F }):
			return fmt.Errorf("%q holds a space or control character", subject)
		case token == "*" || token == ">":
			if !wildcards {
				return fmt.Errorf("%q has the wildcard %s; a message has one subject", subject,
					token)
			}
			if token == ">" && i < len(tokens)-1 {
				return fmt.Errorf("%q has > before its end", subject)
			}
		}
	}
	return nil
}

// overlap reports whether a subject can match both patterns.
func overlap(a, b string) bool {
	left, right := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(left), len(right)) {
		switch l, r := left[i], right[i]; {
		case l == ">" || r == ">":
			return true
		case l != r && l != "*" && r != "*":
			return false
		}
	}
	return len(left) == len(right)
}

// Shape implements stream.Shaper. A record has the field message, which is the data of the NATS
// message, and the fields of the option meta.
func (o *SourceOptions) Shape(in stream.Schema) (stream.Schema, error) {
	return o.Meta.fields().Shape(in), nil
}
