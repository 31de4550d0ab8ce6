package httpserver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/buffer"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/listen"
	"github.com/penstock-io/penstock/engine/kit/natsaccess"
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

var formats = []string{Lines, NDJSON, JSONArray, Bulk, Loki, OTLP}

// Options are the options of the source.
type Options struct {
	Listen      string        `yaml:"listen" required:"true" doc:"HOST:PORT"`
	Path        string        `yaml:"path" doc:"of requests; \"\" is the one of the format"`
	Format      string        `yaml:"format" enum:"lines,ndjson,json_array,elasticsearch_bulk,loki,otlp" doc:"of a body"`
	Ack         string        `yaml:"ack" enum:"delivered,buffered" doc:"of a request"`
	Deadline    time.Duration `yaml:"deadline" doc:"for a request, from its header to its answer"`
	Idempotency time.Duration `yaml:"idempotency" doc:"how long the answer to an Idempotency-Key is kept"`
	Token       string        `yaml:"token" secret:"true" doc:"that clients must send; ${file:/path} keeps it out of the config"`
	Tokens      listen.Tokens `yaml:"tokens" secret:"true" doc:"by the name of the client, in place of token"`
	TLS         listen.TLS    `yaml:"tls" doc:"certificates"`
	Insecure    bool          `yaml:"insecure" doc:"listen beyond loopback without a token or without TLS"`

	Buffer   buffer.Options `yaml:"buffer" doc:"of ack: buffered"`
	Register Register       `yaml:"register" doc:"where senders find this worker"`

	MaxBody     stream.Size   `yaml:"max_body" doc:"of one request, decompressed"`
	MaxRecord   stream.Size   `yaml:"max_record" doc:"a longer record is refused"`
	MaxHeader   stream.Size   `yaml:"max_header" doc:"of one request"`
	MaxRatio    int           `yaml:"max_ratio" doc:"of a body of more than 1MiB to its compressed size"`
	Memory      stream.Size   `yaml:"memory" doc:"bytes of requests that wait for delivery; then new ones wait"`
	Connections int           `yaml:"connections" doc:"open at once; the one idle longest is closed for a new one"`
	Slots       int           `yaml:"slots" min:"0" max:"10000" doc:"requests that the sink serves at once; 0: unknown"`
	HeaderTime  time.Duration `yaml:"header_timeout" doc:"for the header of a request"`
	IdleTime    time.Duration `yaml:"idle_timeout" doc:"until an idle connection is closed"`
}

// Register makes the source answer, at NATS servers, the requests of senders that look for workers.
type Register struct {
	natsaccess.Options

	Subject string `yaml:"subject" doc:"on which senders ask, such as penstock.workers.orders"`
	Address string `yaml:"address" doc:"HOST:PORT for senders; default: that of listen"`
}

// check checks the options of a source that listens on an address.
func (r *Register) check(listening string) error {
	if *r == (Register{}) {
		return nil
	}
	wrong := func(key string, err error) error {
		return &stream.OptionError{Key: "register." + key, Err: err}
	}
	if err := r.Options.Check("register"); err != nil {
		return err
	}
	if err := registry.CheckSubject(r.Subject); err != nil {
		return wrong("subject", err)
	}
	if r.Address != "" {
		host, port, err := net.SplitHostPort(r.Address)
		if err != nil || host == "" || port == "" || port == "0" {
			return wrong("address", fmt.Errorf("is %q, want HOST:PORT", r.Address))
		}
		return nil
	}
	host, _, err := net.SplitHostPort(listening)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		const text = "is missing: %q is every address of this machine; name the one for senders"
		return wrong("address", fmt.Errorf(text, listening))
	}
	return nil
}

// DefaultOptions returns options for the format lines.
func DefaultOptions() *Options {
	return &Options{
		Format: Lines, Ack: buffer.Delivered, Buffer: buffer.DefaultOptions(),
		Deadline: 30 * time.Second, Idempotency: 24 * time.Hour,
		MaxBody: 16 << 20, MaxRecord: 1 << 20, MaxHeader: 32 << 10, MaxRatio: 100, Memory: 128 << 20,
		Connections: 10_000, HeaderTime: 10 * time.Second, IdleTime: time.Minute,
	}
}

// Exclusive implements stream.ExclusiveUser.
func (o *Options) Exclusive() []string { return listen.Exclusive("tcp", o.Listen) }

// Validate returns an error for wrong options. It reads the files of tls.
func (o *Options) Validate() error {
	var errs []error
	wrong := func(key, format string, args ...any) {
		errs = append(errs, &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)})
	}
	known := o.Token != "" || len(o.Tokens) > 0 || o.TLS.ClientCA != ""
	remedy := "set a token, or tls.client_ca"
	if known {
		remedy = "set tls.cert and tls.key"
	}
	errs = append(errs, listen.CheckAddress(o.Listen, o.Insecure || known && o.TLS.On(), remedy))
	if !slices.Contains(formats, o.Format) {
		wrong("format", "is %q, want one of %s", o.Format, strings.Join(formats, ", "))
	}
	if o.Path != "" && (!strings.HasPrefix(o.Path, "/") || strings.ContainsAny(o.Path, "{}?# ")) {
		wrong("path", "is %q, want a path such as /in", o.Path)
	}
	for _, d := range []struct {
		key         string
		value       time.Duration
		least, most time.Duration
	}{
		{"deadline", o.Deadline, 100 * time.Millisecond, time.Hour},
		{"idempotency", o.Idempotency, 0, 7 * 24 * time.Hour},
		{"header_timeout", o.HeaderTime, 100 * time.Millisecond, time.Hour},
		{"idle_timeout", o.IdleTime, time.Second, 24 * time.Hour},
	} {
		if d.value < d.least || d.value > d.most {
			wrong(d.key, "is %v, want %v to %v", d.value, d.least, d.most)
		}
	}
	switch {
	case o.Memory < intake.MinMemory || o.Memory > intake.MaxSubmission:
		wrong("memory", "is %v, want %v to less than 1GiB", o.Memory, intake.MinMemory)
	case o.MaxBody < 1 || o.MaxBody > o.Memory/2:
		wrong("max_body", "is %v, want 1B to half of memory, %v", o.MaxBody, o.Memory/2)
	case o.MaxRecord < 1 || o.MaxRecord > o.MaxBody:
		wrong("max_record", "is %v, want 1B to max_body, %v", o.MaxRecord, o.MaxBody)
	}
	if o.MaxHeader < 1<<10 || o.MaxHeader > 1<<20 {
		wrong("max_header", "is %v, want 1KiB to 1MiB", o.MaxHeader)
	}
	if o.MaxRatio < 1 {
		wrong("max_ratio", "is %d, want 1 or more", o.MaxRatio)
	}
	errs = append(errs, stream.CheckEnums(o), buffer.Check(o.Ack, o.Buffer, o.MaxRecord))
	errs = append(errs, o.Register.check(o.Listen))
	errs = append(errs, listen.CheckConnections(o.Connections), listen.CheckTokens(o.Token, o.Tokens), o.TLS.Check())
	return errors.Join(errs...)
}

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
