// Package where implements the processor that keeps records for which a condition is true, and
// drops all others.
//
// The processor does not change the records that it keeps.
package where

import (
	"context"
	"fmt"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the processor. In a config, they may be a single text, the condition.
type Options struct {
	Expr    expr.Text `yaml:"expr" required:"true" doc:"condition; where: EXPR is the short form"`
	OnError string    `yaml:"on_error" enum:"dead_letter,pass,drop" doc:"on errors of expr; default: that of parse, or dead_letter"`

	program *expr.Program
	onError string
	short   bool // written as a single text
}

// UnmarshalText parses options that are a single text.
func (o *Options) UnmarshalText(text []byte) error {
	o.Expr, o.short = expr.Text(text), true
	return nil
}

// Expression tells the config reader that options in the form of a text are an expression.
func (*Options) Expression() {}

// Otherwise returns the condition of the route with `otherwise: true`. Each element of lists has
// the conditions of one other route, as *Options. The result is true for a record for which each of
// these routes has a false condition. If the condition cannot be evaluated for a record, the
// `on_error` of the last processor `parse` before it applies. The `on_error` options of the other
// routes' conditions have no effect.
func (*Options) Otherwise(lists [][]any) any {
	var all []string
	for _, list := range lists {
		var conditions []string
		for _, o := range list {
			text := string(o.(*Options).Expr)
			if strings.Contains(text, "//") || strings.Contains(text, "#") {
				text += "\n" // the text may end with a comment
			}
			conditions = append(conditions, "("+text+")")
		}
		all = append(all, "not ("+strings.Join(conditions, " and ")+")")
	}
	return &Options{Expr: expr.Text(strings.Join(all, " and ")), short: true}
}

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.ProcessorRole, "where",
		func() *Options { return new(Options) }, New)
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

// Processor drops records for which the condition is false. It must be used by one goroutine.
type Processor struct {
	condition *expr.Evaluator
	onError   string
	text      expr.Text
	host      stream.Host
}

// New returns a processor. If Shape was not called before, the condition may use any field.
func New(o Options, h stream.Host) (*Processor, error) {
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
