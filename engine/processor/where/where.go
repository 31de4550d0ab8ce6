// Package where holds the processor that keeps the records for which a condition is true.
//
// The others are left out and settle as dropped. It owns nothing and changes no record.
package where

import (
	"context"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// Options of the processor; a text alone is the condition.
type Options struct {
	Expr    expr.Text `yaml:"expr" required:"true" doc:"the condition; where: EXPR alone is enough"`
	OnError string    `yaml:"on_error" enum:"dead_letter,pass,drop" doc:"of a record for which nothing can be said; default: the parser's"`

	program *expr.Program
	onError string
	short   bool // written as a text alone
}

// UnmarshalText reads the short form.
func (o *Options) UnmarshalText(text []byte) error {
	o.Expr, o.short = expr.Text(text), true
	return nil
}

// Expression marks the short form as an expression.
func (*Options) Expression() {}

// Component is the processor's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.ProcessorRole,
		Name:    "where",
		Options: func() any { return new(Options) },
		New: func(options any, h stream.Host) (any, error) {
			return New(options.(*Options), h)
		},
	}
}

// Shape implements stream.Shaper.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	key := "expr"
	if o.short {
		key = ""
	}
	program, err := expr.Condition(string(o.Expr), in)
	if err != nil {
		return in, expr.Option(key, err)
	}
	o.program, o.onError = program, in.OnError
	if o.OnError != "" {
		o.onError = o.OnError
	}
	return in, nil
}

// Processor filters batches. It serves one goroutine.
type Processor struct {
	condition *expr.Evaluator
	onError   string
	text      expr.Text
	host      stream.Host
}

// New returns a processor. Without a config, which would say more, records may have any fields.
func New(o *Options, h stream.Host) (*Processor, error) {
	if o.program == nil {
		if _, err := o.Shape(stream.Schema{Open: true}); err != nil {
			return nil, err
		}
	}
	return &Processor{expr.NewEvaluator(o.program), o.onError, o.Expr, h}, nil
}

// Process implements stream.Processor.
func (p *Processor) Process(_ context.Context, b *stream.Batch) error {
	b.Split()
	p.condition.Begin(b)
	wrong := 0
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		holds, err := p.condition.Holds(i)
		switch {
		case err != nil:
			b.Refuse(i, p.onError, fmt.Errorf("where %s: %w", p.text, err))
			wrong++
		case !holds:
			b.Drop(i)
		}
	}
	if wrong > 0 {
		p.host.Count("records_undecided", int64(wrong))
	}
	return nil
}
