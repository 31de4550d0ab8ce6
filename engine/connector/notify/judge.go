package notify

import (
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

// responseSchema lists the fields that conditions on a response can use. Header names are in lower
// case.
var responseSchema = stream.Schema{Fields: []stream.SchemaField{
	{Name: "status", Type: stream.IntegerType},
	{Name: "headers", Type: stream.JSONType},
	{Name: "body", Type: stream.TextType},
}}

// compileConditions compiles the conditions on responses.
func (p *programs) compileConditions(o *Options) error {
	for _, c := range []struct {
		key  string
		text expr.Text
		to   **expr.Program
	}{
		{"accept", o.Accept, &p.accept}, {"stop", o.Stop, &p.stop},
		{"async.done", o.Async.Done, &p.done}, {"async.failed", o.Async.Failed, &p.failed},
		{"async.location", o.Async.Location, &p.location},
	} {
		if *c.to = nil; c.text == "" {
			continue
		}
		compile := expr.Condition
		if c.to == &p.location {
			compile = expr.Value
		}
		var err error
		if *c.to, err = compile(string(c.text), responseSchema); err != nil {
			return expr.Option(c.key, err)
		}
		if (*c.to).Meta() {
			return stream.OptionErrorf(c.key, "meta belongs to records; a response has status, "+
				"headers and body")
		}
	}
	return nil
}

// response is the response of a receiver. body has at most the first maxResponse bytes.
type response struct {
	status    int
	header    nethttp.Header
	body      []byte
	truncated bool
}

// judge returns the event that a response causes for its delivery, such as an acceptance or a
// failed attempt. If the event is not an acceptance, judge also returns the reason. A condition
// that cannot be evaluated counts as false.
func (p *programs) judge(r *response) (parked.Event, string) {
	accepted, reason := r.status >= 200 && r.status < 300, ""
	if p.accept != nil {
		var err error
		if accepted, err = holds(p.accept, r); err != nil {
			reason = fmt.Sprintf("; accept cannot be evaluated: %v", err)
		} else if !accepted {
			reason = "; accept is false"
		}
	}
	status := strings.TrimSpace(strconv.Itoa(r.status) + " " + nethttp.StatusText(r.status))
	switch {
	case accepted:
		return parked.Accept, ""
	case r.status == nethttp.StatusGone:
		return parked.Stop, status
	}
	if p.stop != nil {
		stops, err := holds(p.stop, r)
		if err != nil {
			reason += fmt.Sprintf("; stop cannot be evaluated: %v", err)
		} else if stops {
			return parked.Stop, status + "; stop holds"
		}
	}
	return parked.Refuse, status + reason
}

// holds evaluates a condition on a response.
func holds(condition *expr.Program, r *response) (bool, error) {
	e, err := r.evaluator(condition)
	if err != nil {
		return false, err
	}
	return e.Holds(0)
}

// evaluator returns an evaluator of the program p for a single record, which has the fields of the
// response. If p reads the body, and the body was truncated, it returns an error.
func (r *response) evaluator(p *expr.Program) (*expr.Evaluator, error) {
	if r.truncated && p.Reads("body") {
		return nil, fmt.Errorf("the body is longer than %d bytes", maxResponse)
	}
	headers := make(map[string]string, len(r.header))
	for name, values := range r.header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	object, err := json.Marshal(headers)
	if err != nil {
		return nil, err
	}
	b := stream.NewBatch(stream.BatchLimits{})
	b.Names = responseSchema.Names()
	b.Data = strconv.AppendInt(nil, int64(r.status), 10)
	digits := uint32(len(b.Data))
	b.Data = append(append(b.Data, object...), r.body...)
	b.Fields = []stream.Field{
		{Name: 0, Kind: stream.Number, Len: digits},
		{Name: 1, Kind: stream.JSON, Off: digits, Len: uint32(len(object))},
		{Name: 2, Off: digits + uint32(len(object)), Len: uint32(len(r.body))},
	}
	b.Records = []stream.Record{{NumFields: 3, Parsed: true}}
	e := expr.NewEvaluator(p)
	e.Begin(b)
	return e, nil
}

// isDown reports whether a status indicates that the host is down.
func isDown(status int) bool { return status >= 500 }
