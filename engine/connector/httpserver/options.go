package httpserver

import (
	"errors"
	"net"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/natsaccess"
	"github.com/penstock-io/penstock/engine/kit/push"
	"github.com/penstock-io/penstock/engine/kit/registry"
	"github.com/penstock-io/penstock/stream"
)

// The formats of a body.
const (
	Lines     = "lines"              // each line is a record
	NDJSON    = "ndjson"             // one JSON object per line
	JSONArray = "json_array"         // an array of JSON objects, or one object
	Bulk      = "elasticsearch_bulk" // an action line and a document for each record
	Loki      = "loki"               // Loki's push API, JSON or protobuf
	OTLP      = "otlp"               // OTLP/HTTP logs, JSON or protobuf
)

// Options are the options of the source.
type Options struct {
	push.ServerOptions
	Path        string        `yaml:"path" doc:"path of requests; default: that of the format"`
	Format      string        `yaml:"format" enum:"lines,ndjson,json_array,elasticsearch_bulk,loki,otlp" doc:"format of request bodies"`
	Idempotency time.Duration `yaml:"idempotency" doc:"how long the answer to an Idempotency-Key is kept, if there is room; 0: not at all"`
	Register    Register      `yaml:"register" doc:"NATS servers at which senders find this worker"`

	MaxBody    stream.Size   `yaml:"max_body" doc:"maximum body of one request, decompressed"`
	MaxHeader  stream.Size   `yaml:"max_header" doc:"maximum header of one request"`
	MaxRatio   int           `yaml:"max_ratio" doc:"maximum ratio of a body of more than 1MiB to its compressed size"`
	Slots      int           `yaml:"slots" min:"0" max:"10000" doc:"requests that the sink serves at once; 0: unknown"`
	HeaderTime time.Duration `yaml:"header_timeout" doc:"time limit for the header of a request"`
}

// Register makes the source known to senders: at NATS servers, it answers requests of senders that
// look for workers.
type Register struct {
	natsaccess.Options

	Subject string `yaml:"subject" doc:"subject for senders, such as penstock.workers.orders"`
	Address string `yaml:"address" doc:"HOST:PORT for senders; default: that of listen"`
}

// check checks the options of a source that listens on an address.
func (r *Register) check(listening string) error {
	if *r == (Register{}) {
		return nil
	}
	if err := r.Options.Check("register"); err != nil {
		return err
	}
	if err := registry.CheckSubject(r.Subject); err != nil {
		return stream.OptionErrorf("register.subject", "%w", err)
	}
	if r.Address != "" {
		host, port, err := net.SplitHostPort(r.Address)
		if err != nil || host == "" || port == "" || port == "0" {
			return stream.OptionErrorf("register.address", "is %q, want HOST:PORT", r.Address)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(listening)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		const text = "is missing: %q is every address of this machine; name the one for senders"
		return stream.OptionErrorf("register.address", text, listening)
	}
	return nil
}

const defaultHeaderTime = 10 * time.Second

// DefaultOptions returns options for the format lines.
func DefaultOptions() *Options {
	return &Options{
		ServerOptions: push.ServerOptions{
			Deadline: 30 * time.Second, MaxRecord: 1 << 20,
			Options: push.Options{
				Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(), Memory: 128 << 20,
				Connections: 10_000, IdleTime: time.Minute,
			},
		},
		Format: Lines, Idempotency: 24 * time.Hour, HeaderTime: defaultHeaderTime,
		MaxBody: 16 << 20, MaxHeader: 32 << 10, MaxRatio: 100,
	}
}

// Validate returns an error if an option is invalid. It also reads the files of tls.
func (o *Options) Validate() error {
	if o.MaxRatio < 1 {
		return stream.OptionErrorf("max_ratio", "is %d, want 1 or more", o.MaxRatio)
	}
	return errors.Join(
		stream.CheckEnums(o), o.Check("max_body", o.MaxBody), o.checkPath(),
		stream.CheckRange("idempotency", o.Idempotency, 0, 7*24*time.Hour),
		stream.CheckRange("header_timeout", o.HeaderTime, 100*time.Millisecond, time.Hour),
		o.CheckPart("header_timeout", o.HeaderTime, defaultHeaderTime),
		stream.CheckRange("max_header", o.MaxHeader, 1<<10, 1<<20),
		o.Register.check(o.Listen),
	)
}

// KeepRequests implements stream.RequestOptions. It returns the option idempotency, the time for
// which requests are remembered. With a buffer, it returns 0: the requests have no partitions of
// their own, because the buffer stores all of them in one partition.
func (o *Options) KeepRequests() time.Duration {
	if o.Ack == buffer.Buffered {
		return 0
	}
	return o.Idempotency
}

func (o *Options) checkPath() error {
	if o.Path != "" && (!strings.HasPrefix(o.Path, "/") || strings.ContainsAny(o.Path, "{}?# ")) {
		return stream.OptionErrorf("path", "is %q, want a path such as /in", o.Path)
	}
	return nil
}

// ReadsObjects implements stream.ObjectOptions.
func (o *Options) ReadsObjects() bool { return o.Format != Lines }

// Shape implements stream.Shaper. The members of JSON objects become fields.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	switch o.Format {
	case Lines:
		return in, nil
	case Loki:
		return stream.Schema{Fields: lokiFields, OnError: in.OnError}, nil
	case OTLP:
		return stream.Schema{Fields: otlpFields, Open: true, OnError: in.OnError}, nil
	}
	return stream.Schema{Open: true, OnError: in.OnError}, nil
}

// path returns the path of requests.
func (o *Options) path() string {
	if o.Path != "" {
		return o.Path
	}
	switch o.Format {
	case Bulk:
		return "/_bulk"
	case Loki:
		return "/loki/api/v1/push"
	case OTLP:
		return "/v1/logs"
	}
	return "/"
}
