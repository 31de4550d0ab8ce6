package http

import (
	"fmt"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// answerSchema lists the fields of a response that the condition in the option accept can use.
var answerSchema = stream.Schema{Fields: []stream.SchemaField{
	{Name: "status", Type: stream.IntegerType}, {Name: "body", Type: stream.TextType},
}}

// checkAccept checks and compiles the condition in the option accept.
func (o *Options) checkAccept() (err error) {
	if o.Accept == "" {
		return nil
	}
	if o.Body == ElasticsearchBulk || o.Body == ClickHouse {
		return stream.OptionErrorf("accept", "has no effect: the response to body: %s reports "+
			"the accepted records; remove it", o.Body)
	}
	if o.accept, err = expr.Condition(string(o.Accept), answerSchema); err != nil {
		return expr.Option("accept", err)
	}
	if o.accept.Meta() {
		return stream.OptionErrorf("accept", "meta belongs to records; a response has status and "+
			"body")
	}
	return nil
}

// Outcome implements httpsink.Codec. With the option accept, a batch is delivered if the response
// meets this condition. If the response does not meet it, and its status is 2xx or retryable, the
// batch is retried. With any other status, the outcome is the same as without the option. The
// condition cannot be checked for a body that has ended early. Then the outcome is always the same
// as without the option.
func (c *codec) Outcome(b *stream.Batch, r *httpsink.Response) error {
	if c.o.accept == nil || r.Cut != nil {
		return c.Codec.Outcome(b, r)
	}
	accepted, err := judgeAcceptance(c.o.accept, r.Status, r.Body)
	if accepted {
		return nil
	}
	if _, retryable := r.Err.(*httpsink.StatusError); retryable || r.Err == nil {
		return &NotAcceptedError{*r.StatusError(), string(c.o.Accept), err}
	}
	return r.Err
}

// judgeAcceptance reports whether a response meets the condition accept, which replaces the check
// for a 2xx status. If the condition cannot be evaluated, for example because it calls fromJSON and
// the body is not JSON, the result is false with an error.
func judgeAcceptance(accept *expr.Program, status int, body []byte) (bool, error) {
	b := stream.NewBatch(stream.BatchLimits{Bytes: len(body) + 3, Records: 1})
	b.Data = append(strconv.AppendInt(b.Data, int64(status), 10), body...)
	b.Names = []string{"status", "body"}
	digits := uint32(len(b.Data) - len(body))
	b.Fields = []stream.Field{
		{Name: 0, Kind: stream.Number, Len: digits},
		{Name: 1, Off: digits, Len: uint32(len(body))},
	}
	b.Records = []stream.Record{{NumFields: 2, Parsed: true}}
	e := expr.NewEvaluator(accept)
	e.Begin(b)
	return e.Holds(0)
}

// NotAcceptedError means that a response did not meet the condition in the option accept.
type NotAcceptedError struct {
	httpsink.StatusError
	Condition string
	Err       error // why the condition cannot be evaluated; nil if it is false
}

// Error implements error. It includes the response and the condition.
func (e *NotAcceptedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s; accept: %s cannot be evaluated: "+
			"%v", e.StatusError.Error(), e.Condition, e.Err)
	}
	return fmt.Sprintf("%s; accept: %s is false", e.StatusError.Error(), e.Condition)
}

// Unwrap returns Err.
func (e *NotAcceptedError) Unwrap() error { return e.Err }
