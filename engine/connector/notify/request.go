package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/egress"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/kit/parked"
	"github.com/penstock-io/penstock/stream"
)

// maxKey is the maximum length of a business key in bytes.
const maxKey = 256

// maxBody is the maximum size of a request's body in bytes.
const maxBody = 1 << 20

// programs has the compiled expressions in the options.
type programs struct {
	url, method, body, key, signer *expr.Program // nil if not an expression or not set
	schedule                       *expr.Program
	headers                        []expr.Named
	accept, stop                   *expr.Program
	location, done, failed         *expr.Program // of async
}

// Shape implements stream.Shaper. It compiles the expressions over records.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	p := &o.programs
	method := o.Method
	if slices.Contains(methods, string(method)) {
		method = ""
	}
	for _, e := range []struct {
		key  string
		text expr.Text
		to   **expr.Program
	}{
		{"url", o.URL, &p.url}, {"method", method, &p.method}, {"body", o.Body, &p.body},
		{"idempotency_key", o.IdempotencyKey, &p.key}, {"sign.key", o.Sign.Key, &p.signer},
		{"schedule", o.Schedule.Of, &p.schedule},
	} {
		var err error
		if *e.to, err = e.text.Compile(e.key, in); err != nil {
			return in, err
		}
	}
	var err error
	if p.headers, err = expr.CompileNamed("headers", o.Headers, in); err != nil {
		return in, err
	}
	return in, nil
}

// evaluators creates rows for the store from the records of a batch. It must be used by one
// goroutine at a time.
type evaluators struct {
	o                              *Options
	url, method, body, key, signer *expr.Evaluator
	schedule                       *expr.Evaluator
	waits                          waitsCache
	headers                        []*expr.Evaluator
	text                           []byte
}

func newEvaluators(o *Options) *evaluators {
	p := &o.programs
	e := &evaluators{
		o:        o,
		url:      expr.NewEvaluator(p.url),
		method:   expr.NewEvaluator(p.method),
		body:     expr.NewEvaluator(p.body),
		key:      expr.NewEvaluator(p.key),
		signer:   expr.NewEvaluator(p.signer),
		schedule: expr.NewEvaluator(p.schedule),
		waits:    waitsCache{},
	}
	for _, h := range p.headers {
		e.headers = append(e.headers, expr.NewEvaluator(h.Program))
	}
	return e
}

// begin prepares the evaluators for a batch.
func (e *evaluators) begin(b *stream.Batch) {
	all := []*expr.Evaluator{e.url, e.method, e.body, e.key, e.signer, e.schedule}
	for _, one := range append(all, e.headers...) {
		one.Begin(b)
	}
}

// value returns the value of an expression for record i. If the expression is nil, it returns
// missing. name is the name of the option, for errors.
func (e *evaluators) value(
	name string, one *expr.Evaluator, i int, missing string,
) (string, error) {
	if one == nil {
		return missing, nil
	}
	var err error
	if e.text, err = one.AppendText(e.text[:0], i); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(e.text), nil
}

// row returns record i as a row for the store of parked deliveries. An error means that no request
// can be made from the record.
func (e *evaluators) row(b *stream.Batch, i int, now time.Time) (row parked.Row, err error) {
	rec := &b.Records[i]
	part := b.Spans[rec.Span].Part
	row = parked.Row{
		Partition: part.ID,
		File:      part.Name,
		Position:  rec.Origin,
		Sub:       rec.Sub,
		Weight:    1,
		Start:     now,
		Body:      b.Text(i),
	}
	var errs [6]error
	raw, waits := "", ""
	raw, errs[0] = e.value("url", e.url, i, "")
	row.Method, errs[1] = e.value("method", e.method, i, string(e.o.Method))
	id := string(stream.AppendShortID(nil, b, i, maxKey))
	row.Key, errs[2] = e.value("idempotency_key", e.key, i, id)
	row.Signer, errs[3] = e.value("sign.key", e.signer, i, "")
	row.Header, errs[4] = e.header(i)
	if waits, errs[5] = e.value("schedule", e.schedule, i, ""); errs[5] == nil {
		row.Waits, errs[5] = e.waits.get(waits)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return row, err
	}
	switch {
	case e.body != nil:
		body, err := e.value("body", e.body, i, "")
		if err != nil {
			return row, err
		}
		row.Record, row.Body = row.Body, []byte(body)
	case rec.Parsed:
		row.Record, row.Body = row.Body, ndjson.AppendRecord(nil, b, i)
	}
	switch {
	case !slices.Contains(methods, row.Method):
		return row, fmt.Errorf(
			"method: %.20q is not one of %s", row.Method, strings.Join(methods, ", "),
		)
	case row.Key == "" || len(row.Key) > maxKey:
		return row, fmt.Errorf(
			"idempotency_key: has %d bytes; it needs 1 to %d", len(row.Key), maxKey,
		)
	case !visible(row.Key):
		return row, errors.New("idempotency_key: has bytes that are not allowed in a header")
	case len(row.Body) > maxBody:
		return row, fmt.Errorf(
			"body: has %d bytes, at most %d are possible", len(row.Body), maxBody,
		)
	}
	u, host, err := e.o.Allow.Check(raw)
	if err != nil {
		return row, fmt.Errorf("url: %w", err)
	}
	row.URL, row.Host = u.String(), host
	return row, e.o.Sign.check(row.Signer)
}

// header returns the headers of record i as a JSON object.
func (e *evaluators) header(i int) (string, error) {
	if len(e.headers) == 0 {
		return "", nil
	}
	values := make(map[string]string, len(e.headers))
	for n, one := range e.headers {
		name := e.o.programs.headers[n].Name
		value, err := e.value("headers."+name, one, i, "")
		if err != nil {
			return "", err
		}
		for _, c := range []byte(value) {
			if c < ' ' && c != '\t' || c == 0x7F {
				return "", fmt.Errorf(
					"headers.%s: the value has the control character %#x", name, c,
				)
			}
		}
		values[name] = value
	}
	text, err := json.Marshal(values)
	return string(text), err
}

// visible reports whether text consists of visible ASCII characters, so that it can be sent in a
// header unchanged.
func visible(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7F })
}

// refusal is the error of a record from which no request can be made.
type refusal struct{ err error }

// Error implements error.
func (r *refusal) Error() string { return r.err.Error() }

// Unwrap returns the cause.
func (r *refusal) Unwrap() error { return r.err }

// Group implements stream.Grouped: dead letters with the same reason are counted together. A
// refused URL belongs to the detail, because it differs from record to record.
func (r *refusal) Group() (reason, detail string) {
	if refused, ok := errors.AsType[*egress.RefusedError](r.err); ok {
		return "url is not allowed: " + refused.Reason, refused.Target
	}
	return r.err.Error(), ""
}
