package nats

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/stream"
)

// The formats of a message's data.
const (
	formatJSON = "json" // an object of the fields; {"message":"..."} if the record was not parsed
	formatRaw  = "raw"  // the record's text, or its field message if it was parsed and has one
)

// SinkOptions are the options of the sink.
type SinkOptions struct {
	Connection
	Subject expr.Text            `yaml:"subject" required:"true" doc:"subject; a text that is no subject is an expression"`
	Stream  string               `yaml:"stream" doc:"name of the stream that must take the messages; empty: any"`
	ID      expr.Text            `yaml:"id" doc:"expression of Nats-Msg-Id; empty: the id of the record"`
	Headers map[string]expr.Text `yaml:"headers" doc:"expressions of the headers, by name; null leaves a header out"`
	Format  string               `yaml:"format" enum:"json,raw" doc:"of the data: an object of the fields, or the record's text"`

	subject *expr.Program // nil: a fixed subject
	id      *expr.Program // nil: the record's id
	headers []header      // sorted by name
}

type header struct {
	name  string
	value *expr.Program
}

const maxHeaders = 100

// reservedHeader is the prefix of headers that have a meaning for the server.
const reservedHeader = "nats-"

// DefaultSinkOptions returns options that send JSON objects.
func DefaultSinkOptions() *SinkOptions {
	return &SinkOptions{Connection: defaultConnection(), Format: formatJSON}
}

// PreferredBatch implements stream.Preferred.
func (o *SinkOptions) PreferredBatch() stream.BatchLimits {
	return stream.BatchLimits{Bytes: 256 << 10, Records: 1000}
}

// Validate returns an error for the first wrong option. It reads the files of tls, credentials and
// nkey.
func (o *SinkOptions) Validate() error {
	if err := o.Connection.validate(); err != nil {
		return err
	}
	if strings.TrimSpace(string(o.Subject)) == "" {
		return wrong("subject", "is empty: write a subject, or an expression")
	}
	if o.Stream != "" {
		if err := checkName(o.Stream); err != nil {
			return &stream.OptionError{Key: "stream", Err: err}
		}
	}
	if !slices.Contains([]string{formatJSON, formatRaw}, o.Format) {
		return wrong("format", "is %q, want one of %s, %s", o.Format, formatJSON, formatRaw)
	}
	if len(o.Headers) > maxHeaders {
		return wrong("headers", "has %d names, want at most %d", len(o.Headers), maxHeaders)
	}
	for name := range o.Headers {
		if err := httpaccess.CheckHeader(name, ""); err != nil {
			return &stream.OptionError{Key: "headers", Err: err}
		}
		if strings.HasPrefix(strings.ToLower(name), reservedHeader) {
			return wrong("headers."+name,
				"names that begin with Nats- have a meaning for the server; the option id sets Nats-Msg-Id")
		}
	}
	return nil
}

// Shape implements stream.Shaper. It compiles the expressions.
func (o *SinkOptions) Shape(in stream.Schema) (stream.Schema, error) { return in, o.compile(in) }

func (o *SinkOptions) compile(in stream.Schema) (err error) {
	o.subject, o.id, o.headers = nil, nil, nil
	if checkSubject(string(o.Subject), false) != nil {
		if o.subject, err = expr.Value(string(o.Subject), in); err != nil {
			return expr.Option("subject", err)
		}
	}
	if o.ID != "" {
		if o.id, err = expr.Value(string(o.ID), in); err != nil {
			return expr.Option("id", err)
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

// target returns the sink's subject or subject expression for messages.
func (o *SinkOptions) target() string {
	if o.subject != nil {
		return fmt.Sprintf("subjects %s", o.Subject)
	}
	return string(o.Subject)
}
