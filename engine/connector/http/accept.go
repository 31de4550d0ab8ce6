package http

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// answerSchema is what a condition on an answer may name.
var answerSchema = stream.Schema{Fields: []stream.SchemaField{
	{Name: "status", Type: stream.IntegerType}, {Name: "body", Type: stream.TextType},
}}

// validateAccept compiles the condition.
func (o *Options) validateAccept() (err error) {
	if o.Accept == "" {
		return nil
	}
	if o.Body == ElasticsearchBulk || o.Body == ClickHouse {
		err = fmt.Errorf("what a store of body: %s has taken, its answer says; leave it out", o.Body)
		return &stream.OptionError{Key: "accept", Err: err}
	}
	if o.accept, err = expr.Condition(string(o.Accept), answerSchema); err != nil {
		return expr.Option("accept", err)
	}
	if o.accept.Meta() {
		return &stream.OptionError{Key: "accept", Err: errors.New("meta is of records; an answer has status and body")}
	}
	return nil
}

// judgeAcceptance says whether an answer counts as delivered, in place of a 2xx. A condition that
// cannot be decided, as when the body is no JSON, is not met; the error says why.
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

// NotAcceptedError is an answer that `accept` does not take for a delivery.
type NotAcceptedError struct {
	StatusError
	Condition string
	Err       error // why it could not be decided; nil: it is false
}

// Error gives the answer and the condition.
func (e *NotAcceptedError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s; accept: %s cannot be decided: %v", e.StatusError.Error(), e.Condition, e.Err)
	}
	return fmt.Sprintf("%s; accept: %s does not hold", e.StatusError.Error(), e.Condition)
}

// Unwrap returns why it could not be decided.
func (e *NotAcceptedError) Unwrap() error { return e.Err }
