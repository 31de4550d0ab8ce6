// Package expr evaluates expressions for the records of a batch. Processors and connectors use it
// for conditions and for computed values.
//
// The language is that of github.com/expr-lang/expr, with a few corrections. A field is written as
// its name. If the name is not an identifier, it is written as in `$env["user-agent"]`. `meta.id`,
// `meta.file` and `meta.offset` describe the origin of the record, and `meta.time` is the time at
// which the record was read.
//
// This package evaluates simple expressions itself, usually without allocations. Examples are
// fields, and comparisons of fields with literals, also combined with and, or and not. Other
// expressions run on the library's virtual machine.
//
// A program is immutable and can be shared. An [Evaluator] must be used by one goroutine. The
// package does not change batches or records, except that [Evaluator.Field] may append a value to
// the batch's data.
package expr

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"github.com/penstock-io/penstock/stream"
)

// The limits of an expression.
const (
	MaxNodes     = 1000    // names, literals and operators
	MemoryBudget = 100_000 // elements that one evaluation may allocate in arrays and maps
)

// Error is a mistake in the text of an expression.
type Error struct {
	Message string
	At      int      // offset in the expression, in characters
	Word    string   // an unknown name, if this is the mistake
	Known   []string // the known names
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Program is a compiled expression.
type Program struct {
	text   string
	names  []string // fields that the expression reads
	all    bool     // it uses $env as a whole, and so may read any field
	meta   bool     // it reads meta
	result stream.FieldType
	// lenient means that an order comparison with null, such as x < null, is false instead of an
	// error. A condition that is only a field is then false for null, too. lenient is set if the
	// schema is known: the field names in the expression are then known to be right, so a null is
	// not the result of a misspelled name.
	lenient bool

	condition condition   // nil if the virtual machine is needed
	value     operand     // nil for a condition, or if the virtual machine is needed
	literal   bool        // value is the same for all records
	machine   *vm.Program // nil if condition or value is set
}

// metaNames lists the members of meta.
var metaNames = []string{"id", "file", "offset", "time"}

// Condition compiles an expression with a boolean result for records of the schema.
func Condition(text string, in stream.Schema) (*Program, error) { return compile(text, in, true) }

// Value compiles an expression with any result for records of the schema.
func Value(text string, in stream.Schema) (*Program, error) { return compile(text, in, false) }

func compile(text string, in stream.Schema, condition bool) (*Program, error) {
	if strings.TrimSpace(text) == "" {
		return nil, &Error{Message: "is empty"}
	}
	tree, err := parser.Parse(text)
	if err != nil {
		return nil, problem(err)
	}
	p := &Program{text: text, lenient: !in.Open && len(in.Fields) > 0}
	seen := look(tree.Node)
	if seen.count > MaxNodes {
		return nil, &Error{Message: fmt.Sprintf("has more than %d names, literals and operators",
			MaxNodes)}
	}
	p.names, p.all, p.meta = seen.fields(), seen.all, seen.meta
	if err := seen.check(in); err != nil {
		if _, bare := tree.Node.(*ast.IdentifierNode); bare {
			err.Message += fmt.Sprintf("; if it is meant as text, write '%q'", text)
		}
		return nil, err
	}
	declared := p.names
	if p.all && !in.Open {
		declared = in.Names()
	}
	if p.result, err = typed(text, in, declared, condition); err != nil {
		return nil, err
	}
	b := builder{program: p}
	if condition {
		p.condition = b.condition(tree.Node)
	} else {
		p.value = b.operand(tree.Node)
		_, p.literal = literal(tree.Node)
	}
	if p.condition != nil || p.value != nil {
		return p, nil
	}
	return p, p.assemble(condition)
}

// typed lets the library check the types in an expression. If the schema is known, it checks the
// fields as well. typed returns the type of the result.
func typed(text string, in stream.Schema, names []string,
	condition bool) (stream.FieldType, error) {
	env := types.Map{"meta": types.Map{
		"id": types.String, "file": types.String, "offset": types.Int, "time": types.TypeOf(noTime),
	}}
	for _, n := range names {
		env[n] = types.Any
		if at := in.Find(n); at >= 0 && !in.Open {
			env[n] = libraryTypes[in.Fields[at].Type]
		}
	}
	options := append(corrected(), expr.Env(env), expr.MaxNodes(MaxNodes))
	if condition {
		options = append(options, expr.AsBool())
	}
	if in.Open { // members of $env
		options = append(options, expr.AllowUndefinedVariables())
	}
	program, err := expr.Compile(text, options...)
	if err != nil {
		return "", problem(err)
	}
	if t := program.Node().Type(); t != nil {
		switch t.Kind() {
		case reflect.String:
			return stream.TextType, nil
		case reflect.Int:
			return stream.IntegerType, nil
		case reflect.Float64:
			return stream.NumberType, nil
		case reflect.Bool:
			return stream.BoolType, nil
		}
	}
	// The library does not know the type of a field of the kind JSON or number. If the expression
	// is only the name of a field, the type comes from the schema.
	if id, ok := program.Node().(*ast.IdentifierNode); ok {
		if at := in.Find(id.Value); at >= 0 {
			return in.Fields[at].Type, nil
		}
	}
	return stream.AnyType, nil
}

// Meta reports whether the program may read meta.
func (p *Program) Meta() bool { return p.meta }

// Reads reports whether the program may read the given field.
func (p *Program) Reads(field string) bool { return p.all || slices.Contains(p.names, field) }

// Type returns the type of the result, or [stream.AnyType] if the schema does not determine it.
func (p *Program) Type() stream.FieldType { return p.result }

var libraryTypes = map[stream.FieldType]types.Type{
	stream.AnyType: types.Any, stream.TextType: types.String, stream.IntegerType: types.Int,
	stream.NumberType: types.Any,
	stream.BoolType:   types.Bool, stream.JSONType: types.Any,
}

// assemble compiles the program for the virtual machine. It declares the fields without their
// types, because any value may be null.
func (p *Program) assemble(condition bool) error {
	env := types.Map{"meta": types.Any}
	for _, n := range p.names {
		env[n] = types.Any
	}
	options := append(corrected(), expr.Env(env), expr.MaxNodes(2*MaxNodes),
		expr.AllowUndefinedVariables())
	if condition {
		options = append(options, expr.AsBool())
	}
	if p.lenient {
		options = append(options, ordering()...)
	}
	machine, err := expr.Compile(p.text, options...)
	if err != nil {
		return problem(err)
	}
	p.machine = machine
	return nil
}

// seen collects the names that an expression uses.
type seen struct {
	ids   []*ast.IdentifierNode
	calls map[ast.Node]bool
	local map[string]bool // names declared by let
	metas []*ast.MemberNode
	named []*ast.StringNode // the x in each $env["x"]
	bases map[ast.Node]bool // the $env in these
	all   bool              // $env is used alone
	meta  bool
	count int
}

func look(node ast.Node) *seen {
	s := &seen{calls: map[ast.Node]bool{}, local: map[string]bool{}, bases: map[ast.Node]bool{}}
	ast.Walk(&node, s)
	for _, id := range s.ids {
		s.all = s.all || id.Value == "$env" && !s.bases[id]
	}
	s.meta = s.meta || s.all
	return s
}

// Visit implements ast.Visitor.
func (s *seen) Visit(node *ast.Node) {
	s.count++
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		s.ids = append(s.ids, n)
		s.meta = s.meta || n.Value == "meta"
	case *ast.CallNode:
		s.calls[n.Callee] = true
	case *ast.VariableDeclaratorNode:
		s.local[n.Name] = true
	case *ast.MemberNode:
		base, ok := n.Node.(*ast.IdentifierNode)
		if ok && base.Value == "meta" {
			s.metas = append(s.metas, n)
		}
		if name, is := n.Property.(*ast.StringNode); ok && is && base.Value == "$env" {
			s.named = append(s.named, name)
			s.bases[base] = true
		}
	}
}

// fields returns the names that are fields, without duplicates.
func (s *seen) fields() []string {
	var out []string
	known := map[string]bool{"meta": true, "$env": true}
	for _, id := range s.ids {
		if !known[id.Value] && !s.local[id.Value] && !s.calls[id] {
			known[id.Value] = true
			out = append(out, id.Value)
		}
	}
	for _, n := range s.named {
		if !known[n.Value] {
			known[n.Value] = true
			out = append(out, n.Value)
		}
	}
	return out
}

// check returns an error for a name that records of the schema do not have.
func (s *seen) check(in stream.Schema) *Error {
	for _, m := range s.metas {
		name, ok := m.Property.(*ast.StringNode)
		if ok && !slices.Contains(metaNames, name.Value) {
			return &Error{
				Message: fmt.Sprintf("meta has no %q", name.Value), At: name.Location().From,
				Word: name.Value, Known: metaNames,
			}
		}
	}
	for _, n := range s.named {
		if !in.Open && in.Find(n.Value) < 0 && n.Value != "meta" {
			return noField(n.Value, n.Location().From, in)
		}
	}
	for _, id := range s.ids {
		switch {
		case s.calls[id]:
			return &Error{
				Message: fmt.Sprintf("there is no function %q", id.Value), At: id.Location().From,
				Word: id.Value, Known: functions,
			}
		case in.Open || s.local[id.Value] || id.Value == "meta" || id.Value == "$env" ||
			in.Find(id.Value) >= 0:
		default:
			return noField(id.Value, id.Location().From, in)
		}
	}
	return nil
}

func noField(name string, at int, in stream.Schema) *Error {
	return &Error{Message: fmt.Sprintf("there is no field %q", name), At: at, Word: name,
		Known: in.Names()}
}
