package nats

import (
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/engine/kit/messages"
	"github.com/penstock-io/penstock/stream"
)

// SinkOptions are the options of the sink.
type SinkOptions struct {
	Connection
	Subject expr.Text            `yaml:"subject" required:"true" doc:"subject; a text that is no subject is an expression"`
	Stream  string               `yaml:"stream" doc:"name of the stream that must take the messages; empty: any"`
	ID      expr.Text            `yaml:"id" doc:"expression of Nats-Msg-Id; empty: PIPELINE/ROUTE/ and the id of the record"`
	Headers map[string]expr.Text `yaml:"headers" doc:"expressions of the headers, by name; null leaves a header out"`
	Format  string               `yaml:"format" enum:"json,raw" doc:"form of the data: an object of the fields, or the record's text"`

	subject *expr.Program // nil: a fixed subject
	id      *expr.Program // nil: the record's id
	headers []expr.Named  // sorted by name
}

// reservedHeader is the prefix of headers that have a meaning for the server.
const reservedHeader = "nats-"

// DefaultSinkOptions returns options that send JSON objects.
func DefaultSinkOptions() *SinkOptions {
	return &SinkOptions{Connection: defaultConnection(), Format: messages.JSON}
}

// PreferredBatch implements stream.Preferred. It returns the limits of batches that apply unless
// the config sets them.
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
		return stream.OptionErrorf("subject", "is empty: write a subject, or an expression")
	}
	if o.Stream != "" {
		if err := checkName(o.Stream); err != nil {
			return &stream.OptionError{Key: "stream", Err: err}
		}
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	if err := messages.CheckHeaders(o.Headers); err != nil {
		return err
	}
	for name := range o.Headers {
		if err := httpaccess.CheckHeader(name, ""); err != nil {
			return &stream.OptionError{Key: "headers", Err: err}
		}
		if strings.HasPrefix(strings.ToLower(name), reservedHeader) {
			return stream.OptionErrorf("headers."+name, "names that begin with Nats- have a "+
				"meaning for the server; the option id sets Nats-Msg-Id")
		}
	}
	return nil
}

// Shape implements stream.Shaper. It compiles the expressions.
func (o *SinkOptions) Shape(in stream.Schema) (stream.Schema, error) { return in, o.compile(in) }

func (o *SinkOptions) compile(in stream.Schema) (err error) {
	if o.subject = nil; checkSubject(string(o.Subject), false) != nil {
		if o.subject, err = o.Subject.Compile("subject", in); err != nil {
			return err
		}
	}
	if o.id, err = o.ID.Compile("id", in); err != nil {
		return err
	}
	o.headers, err = expr.CompileNamed("headers", o.Headers, in)
	return err
}

// target returns the subject to which the sink publishes, or the expression for it. It is a part of
// the name of the lane.
func (o *SinkOptions) target() string {
	if o.subject != nil {
		return fmt.Sprintf("subjects %s", o.Subject)
	}
	return string(o.Subject)
}
