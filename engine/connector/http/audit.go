package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/engine/kit/recount"
	"github.com/penstock-io/penstock/stream"
)

// AuditOptions describe how `penstock audit` gets the records that a receiver has stored.
type AuditOptions struct {
	// URL is the URL from which an audit reads a line for each record that the receiver has stored.
	// The GET request has the sink's headers, credentials, certificates and proxy. Empty means that
	// the receiver has no such URL.
	URL string `yaml:"url" doc:"URL for GET; the response has a line for each stored record"`
	// ID is an expression that gives the line which the receiver must return for a record. Empty
	// means that the line is the record itself: its original bytes with body: raw, or else its JSON
	// object.
	ID expr.Text `yaml:"id" doc:"expression for a record's line; default: the record itself"`
}

// checkAudit checks the options of an audit.
func (o *Options) checkAudit() error {
	switch {
	case o.Audit == AuditOptions{}:
		return nil
	case o.Audit.URL == "":
		return stream.OptionErrorf("audit.id", "has no effect without audit.url")
	}
	if err := httpsink.CheckURL(o.Audit.URL); err != nil {
		return stream.OptionErrorf("audit.url", "%w", err)
	}
	if contentTypes[o.Body] == "" && o.Audit.ID == "" {
		return stream.OptionErrorf("audit.id", "is missing: with body: %s, records have no lines "+
			"of their own", o.Body)
	}
	return nil
}

// auditedSink is a sink with the option audit.url. It can compare the records of a receiver with
// the source.
type auditedSink struct {
	*httpsink.Sink
	o *Options
}

// Audit implements stream.AuditedSink. It sends no request yet.
func (s *auditedSink) Audit(context.Context, stream.SinkOptions) (stream.Audit, error) {
	if s.o.Audit.ID != "" && s.o.line == nil { // Shape was not called: records may have any fields
		if _, err := s.o.Shape(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	count, err := recount.New()
	if err != nil {
		return nil, err
	}
	a := &audit{sink: s.Sink, o: s.o, count: count}
	if s.o.line != nil {
		a.evaluator = expr.NewEvaluator(s.o.line)
	}
	return a, nil
}

// audit compares the lines that the receiver returns with the expected ones. It implements
// stream.Audit.
type audit struct {
	sink      *httpsink.Sink
	o         *Options
	count     *recount.Count
	evaluator *expr.Evaluator // for audit.id; nil: the line is the record
	id, text  []byte
}

// Ledger implements stream.Audit. A receiver over HTTP has no ledger.
func (a *audit) Ledger(context.Context) ([]stream.Mark, bool, error) { return nil, false, nil }

// Expect implements stream.Audit. It adds the lines of the kept records of b (neither dropped nor
// dead-lettered) to the expected lines.
func (a *audit) Expect(_ context.Context, b *stream.Batch) error {
	kept := b.AppendKept(nil)
	if a.evaluator != nil {
		a.evaluator.Begin(b)
	}
	for _, i := range kept {
		a.id = b.AppendRecordID(a.id[:0], i)
		if err := a.expect(b, i); err != nil {
			return err
		}
	}
	return nil
}

var errNoLine = errors.New("the value is null, empty or of several lines, so it cannot identify " +
	"the record's line")

// expect adds the lines that the receiver must have for record i. Normally this is one line. But
// without the option audit.id and with body: raw, a record may have several lines, and each of them
// is expected separately.
func (a *audit) expect(b *stream.Batch, i int) error {
	if a.evaluator != nil {
		var err error
		a.text, err = a.evaluator.AppendText(a.text[:0], i)
		if err == nil && (len(a.text) == 0 || bytes.IndexByte(a.text, '\n') >= 0) {
			err = errNoLine
		}
		if err != nil {
			return fmt.Errorf("audit.id %s of record %s: %w", a.o.Audit.ID, a.id, err)
		}
		return a.count.Expect(a.id, a.text)
	}
	return a.count.ExpectRecord(b, i, a.id, a.o.Body != Raw)
}

// Compare implements stream.Audit. It requests the lines of the receiver, and passes each
// difference to found.
func (a *audit) Compare(ctx context.Context, found func(stream.AuditDifference) error) (err error) {
	body, err := a.sink.Get(ctx, a.o.Audit.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if err := a.count.FoundLines(ctx, body); err != nil {
		return fmt.Errorf("the answer of %s: %w", stream.MaskURLs(a.o.Audit.URL), err)
	}
	return a.count.Compare(found)
}

// Close implements stream.Audit. It removes the temporary files with the expected lines.
func (a *audit) Close() error { return a.count.Close() }
