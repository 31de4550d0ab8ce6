package buffer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/natsaccess"
	"github.com/penstock-io/penstock/stream"
)

// The values of the option `ack` of sources that can have a buffer.
const (
	Delivered = "delivered" // acknowledged when every route has settled the data
	Buffered  = "buffered"  // acknowledged when the buffer has stored the data
)

// The values of Options.Sync.
const (
	SyncAlways   = "always"   // data is on disk before it is acknowledged
	SyncInterval = "interval" // data is synced every syncEvery; a power loss may lose it
)

// Options are the options below the key `buffer` of a source.
type Options struct {
	Dir   string        `yaml:"dir" path:"true" doc:"directory; default: in the state directory"`
	Bytes stream.Size   `yaml:"bytes" doc:"size on disk at which the buffer is full and accepts no data"`
	Age   time.Duration `yaml:"age" doc:"older unsettled data makes the buffer full; 0: no limit"`
	Sync  string        `yaml:"sync" enum:"always,interval" doc:"when data counts as stored"`
	Skip  string        `yaml:"skip" doc:"numbers of corrupt envelopes to give up, such as 17-19"`
	NATS  NATS          `yaml:"nats" doc:"a JetStream stream on your NATS servers, in place of dir"`

	maxRecord stream.Size // of the source
}

// NATS names a stream on external NATS servers. Several sources must not share one stream.
type NATS struct {
	natsaccess.Options

	Stream   string `yaml:"stream" doc:"name of the stream, which is created if it is missing"`
	Replicas int    `yaml:"replicas" doc:"number of servers that store a new stream, 1 to 5; 0: 3"`
}

// DefaultOptions returns the default options. With them, not even a power loss loses acknowledged
// data.
func DefaultOptions() Options { return Options{Bytes: 1 << 30, Sync: SyncAlways} }

// minBytes is the least size of a buffer.
const minBytes = 16 << 20

// Check checks the options `ack`, `buffer` and `max_record` of a source.
func Check(ack string, o Options, maxRecord stream.Size) error {
	if ack != Buffered {
		if o != DefaultOptions() {
			return stream.OptionErrorf("buffer", "belongs to ack: buffered")
		}
		return nil
	}
	if o.Bytes < minBytes {
		return stream.OptionErrorf("buffer.bytes", "is %v, want %v or more", o.Bytes,
			stream.Size(minBytes))
	}
	if o.Age < 0 {
		return stream.OptionErrorf("buffer.age", "is %v, want 0 or more", o.Age)
	}
	if err := o.NATS.check(o.Dir); err != nil {
		return err
	}
	if maxRecord > maxEnvelope/2 {
		return stream.OptionErrorf("max_record", "is %v, with ack: buffered at most 8MiB less a "+
			"byte", maxRecord)
	}
	_, err := o.skipped()
	return err
}

// defaultReplicas is the default of NATS.Replicas. With 3 replicas, one server may fail.
const defaultReplicas = 3

// maxReplicas is the maximum number of replicas in JetStream.
const maxReplicas = 5

// check checks the options of a stream on external servers.
func (n *NATS) check(dir string) error {
	if n.URL == "" {
		if *n != (NATS{}) {
			return stream.OptionErrorf("buffer.nats.url", "is missing; write nats://HOST:PORT")
		}
		return nil
	}
	if dir != "" {
		return stream.OptionErrorf("buffer.dir", "excludes nats: the data is either here or there")
	}
	if err := n.Options.Check("buffer.nats"); err != nil {
		return err
	}
	switch {
	case n.Stream == "":
		return stream.OptionErrorf("buffer.nats.stream", "is missing; name the stream, such as "+
			"penstock-push")
	case strings.ContainsAny(n.Stream, " .*>/\\") || len(n.Stream) > 255:
		err := fmt.Errorf("is %q, want at most 255 bytes without space, '.', '*', '>' and slashes", n.Stream)
		return stream.OptionErrorf("buffer.nats.stream", "%w", err)
	case n.Replicas < 0 || n.Replicas > maxReplicas:
		return stream.OptionErrorf("buffer.nats.replicas", "is %d, want 1 to %d", n.Replicas,
			maxReplicas)
	}
	return nil
}

// span is a range of envelope numbers, including the last.
type span struct{ first, last uint64 }

func (s span) has(number uint64) bool { return s.first <= number && number <= s.last }

// skipped parses Skip. The zero span contains no envelope, because numbers begin at 1.
func (o Options) skipped() (span, error) {
	if o.Skip == "" {
		return span{}, nil
	}
	s, err := parseSpan(o.Skip)
	if err != nil {
		return span{}, stream.OptionErrorf("buffer.skip", "%w", err)
	}
	return s, nil
}

// parseSpan parses an envelope number or a range of numbers.
func parseSpan(text string) (span, error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 38)
	last, lastErr := strconv.ParseUint(to, 10, 38)
	if err != nil || lastErr != nil || first == 0 || last < first {
		return span{}, fmt.Errorf("is %q, want a number or a range such as 17-19", text)
	}
	return span{first, last}, nil
}
