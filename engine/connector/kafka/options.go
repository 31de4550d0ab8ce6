package kafka

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Start positions of a partition without a committed offset.
const (
	startEarliest = "earliest"
	startLatest   = "latest"
)

// The values of the option truncated: the reaction if records after the committed offset were
// deleted, or if the offset is beyond the end of the log.
const (
	truncatedStop     = "stop"
	truncatedEarliest = "earliest"
)

// The isolation levels.
const (
	readCommitted   = "read_committed"
	readUncommitted = "read_uncommitted"
)

// SourceOptions are the options of the source.
type SourceOptions struct {
	Connection
	Topics         []string      `yaml:"topics" doc:"names of the topics to read"`
	TopicPattern   string        `yaml:"topic_pattern" doc:"regular expression of whole names, in place of topics"`
	Group          string        `yaml:"group" required:"true" doc:"consumer group; {route} stands for the name of the route"`
	Instance       string        `yaml:"instance" doc:"name of this process: a restart within session_timeout moves no partition"`
	Start          string        `yaml:"start" enum:"earliest,latest" doc:"usual start in a partition without a committed offset"`
	Truncated      string        `yaml:"truncated" enum:"stop,earliest" doc:"reaction if the records after the committed offset are gone"`
	Isolation      string        `yaml:"isolation" enum:"read_committed,read_uncommitted" doc:"whether to read uncommitted records"`
	Meta           MetaOptions   `yaml:"meta" doc:"names of fields for topic, partition, offset, timestamp, key and headers"`
	Memory         stream.Size   `yaml:"memory" doc:"bytes fetched ahead; then fetching pauses"`
	SessionTimeout time.Duration `yaml:"session_timeout" doc:"time without heartbeats after which others get the partitions"`
	RevokeTimeout  time.Duration `yaml:"revoke_timeout" doc:"time limit for running deliveries when partitions move; at most 15s"`

	pattern *regexp.Regexp // nil: use Topics
}

// MetaOptions names the fields that the source adds to records. An empty name means no field.
type MetaOptions struct {
	Topic     string `yaml:"topic" doc:"name of a field for the topic; empty: none"`
	Partition string `yaml:"partition" doc:"name of a field for the partition's number; empty: none"`
	Offset    string `yaml:"offset" doc:"name of a field for the offset; empty: none"`
	Timestamp string `yaml:"timestamp" doc:"name of a field for the time, in RFC 3339 and UTC; empty: none"`
	Key       string `yaml:"key" doc:"name of a field for the key, null if there is none; empty: none"`
	Headers   string `yaml:"headers" doc:"name of a field for a JSON object of the headers; empty: none"`
}

// Limits of the options.
const (
	minMemory  = 1 << 20
	maxTopics  = 1000
	maxGroup   = 200
	minSession = time.Second
	maxSession = 10 * time.Minute
)

// DefaultSourceOptions returns options that read committed records from the start of the logs.
func DefaultSourceOptions() *SourceOptions {
	return &SourceOptions{
		Connection: defaultConnection(), Start: startEarliest, Truncated: truncatedStop, Isolation: readCommitted,
		Memory: 32 << 20, SessionTimeout: 7 * time.Second, RevokeTimeout: stream.RevokeTimeout,
	}
}

// Validate returns an error for the first wrong option. It reads the files of tls.
func (o *SourceOptions) Validate() error {
	if err := o.Connection.validate(); err != nil {
		return err
	}
	if err := o.validateTopics(); err != nil {
		return err
	}
	if err := checkGroup(o.Group); err != nil {
		return &stream.OptionError{Key: "group", Err: err}
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	switch {
	case o.Memory < minMemory:
		return stream.OptionErrorf("memory", "is %v, want %v or more", o.Memory,
			stream.Size(minMemory))
	case o.Memory > 1<<30:
		return stream.OptionErrorf("memory", "is %v, want 1GiB or less", o.Memory)
	case o.SessionTimeout < minSession || o.SessionTimeout > maxSession:
		return stream.OptionErrorf("session_timeout", "is %v, want %v to %v; brokers allow 6s to "+
			"30m by default", o.SessionTimeout, minSession, maxSession)
	case o.RevokeTimeout <= 0 || o.RevokeTimeout > stream.RevokeTimeout:
		return stream.OptionErrorf("revoke_timeout", "is %v, want more than 0s and at most %v",
			o.RevokeTimeout, stream.RevokeTimeout)
	}
	return o.Meta.fields().Check()
}

func (o *SourceOptions) validateTopics() (err error) {
	switch {
	case len(o.Topics) == 0 && o.TopicPattern == "":
		return stream.OptionErrorf("topics", "is missing; name topics, or give topic_pattern")
	case len(o.Topics) > 0 && o.TopicPattern != "":
		return stream.OptionErrorf("topic_pattern", "conflicts with topics; set one of them")
	case len(o.Topics) > maxTopics:
		return stream.OptionErrorf("topics", "has %d names, want at most %d; use topic_pattern",
			len(o.Topics), maxTopics)
	}
	for i, t := range o.Topics {
		if err := checkTopic(t); err != nil {
			return &stream.OptionError{Key: "topics", Err: err}
		}
		if slices.Contains(o.Topics[:i], t) {
			return stream.OptionErrorf("topics", "%q stands twice", t)
		}
	}
	if o.TopicPattern == "" {
		return nil
	}
	if o.pattern, err = regexp.Compile("^(?:" + o.TopicPattern + ")$"); err != nil {
		_, err = regexp.Compile(o.TopicPattern) // the message quotes the pattern as written
		return stream.OptionErrorf("topic_pattern", "%w", err)
	}
	return nil
}

// reads reports whether the options select a topic for reading.
func (o *SourceOptions) reads(topic string) bool {
	if o.pattern != nil {
		return topic != "" && o.pattern.MatchString(topic)
	}
	return slices.Contains(o.Topics, topic)
}

// checkTopic checks a name against Kafka's rules.
func checkTopic(name string) error {
	switch {
	case name == "":
		return errors.New("a name is empty")
	case len(name) > 249:
		return fmt.Errorf("%q... has %d characters, Kafka allows 249", name[:20], len(name))
	case name == "." || name == "..":
		return fmt.Errorf("%q is no name of a topic", name)
	}
	for _, c := range name {
		if !isTopicChar(c) {
			return fmt.Errorf("%q holds %q; names have letters, digits, '.', '_' and '-'", name, c)
		}
	}
	return nil
}

func isTopicChar(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

const routeMark = "{route}"

func checkGroup(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("is empty: processes with the same group share the partitions")
	case len(name) > maxGroup:
		return fmt.Errorf("has %d characters, want at most %d", len(name), maxGroup)
	}
	if rest := strings.ReplaceAll(name, routeMark, ""); strings.ContainsAny(rest, "{}") {
		return fmt.Errorf("%q has a brace that is not part of %s", name, routeMark)
	}
	return nil
}

// Shape implements stream.Shaper. A record has the field message, which is the value of the Kafka
// record, and the fields of the option meta.
func (o *SourceOptions) Shape(in stream.Schema) (stream.Schema, error) {
	return o.Meta.fields().Shape(in), nil
}
