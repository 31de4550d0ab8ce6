package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/vm/runtime"

	kitjson "github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

var noTime time.Time

// functions lists the names of the library's functions.
var functions = func() (out []string) {
	for _, f := range builtin.Builtins {
		out = append(out, f.Name)
	}
	return out
}()

// corrected returns compile options that replace functions of the library. The library's int
// returns a wrong number for a float64 outside the range of int. Its fromJSON changes large
// integers. Its string writes null, lists and objects in the syntax of Go, such as "<nil>".
func corrected() []expr.Option {
	return []expr.Option{
		expr.DisableBuiltin("int"), expr.Function("int", toInt, new(func(any) int)),
		expr.DisableBuiltin("string"), expr.Function("string", toText, new(func(any) string)),
		expr.DisableBuiltin("fromJSON"),
		expr.Function("fromJSON", fromJSON, new(func(string) any)),
	}
}

func toInt(args ...any) (any, error) {
	// -2^63 is a float64, but 2^63-1 is not
	if f, ok := args[0].(float64); ok && !(f >= math.MinInt64 && f < -math.MinInt64) {
		return nil, fmt.Errorf("int(%v) is out of range", f)
	}
	if args[0] == nil {
		return nil, errors.New("int needs a number or text, but gets null")
	}
	return builtin.Int(args[0]), nil
}

// toText returns its argument as the text that a field with this value has.
func toText(args ...any) (any, error) {
	if args[0] == nil {
		return nil, errors.New("string needs a value, but gets null")
	}
	_, text, err := written(nil, args[0])
	return string(text), err
}

func fromJSON(args ...any) (any, error) {
	s, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("fromJSON needs text, but gets %s",
			article(fmt.Sprintf("%T", args[0])))
	}
	var valid json.RawMessage
	if err := json.Unmarshal([]byte(s), &valid); err != nil {
		return nil, fmt.Errorf("fromJSON: %w", err)
	}
	list := []byte("[" + s + "]")
	out, err := kitjson.Decode(list, kitjson.Value{Kind: stream.JSON, Len: len(list)})
	if err != nil {
		return nil, err
	}
	return out.([]any)[0], nil
}

// orders has, for each order operator such as <, the function that replaces it: its name, and its
// comparison of values that are not null. If an operand is null, the function returns false.
// ordering creates the functions.
var orders = map[string]struct {
	name string
	less func(a, b any) bool
}{
	"<":  {"isLess", runtime.Less},
	"<=": {"isLessOrEqual", runtime.LessOrEqual},
	">":  {"isMore", runtime.More},
	">=": {"isMoreOrEqual", runtime.MoreOrEqual},
}

// ordering returns compile options with which an order comparison with null, such as x < null, is
// false instead of an error.
func ordering() []expr.Option {
	options := []expr.Option{expr.Patch(nullable{})}
	for _, o := range orders {
		options = append(options, expr.Function(o.name, func(v ...any) (any, error) {
			if v[0] == nil || v[1] == nil {
				return false, nil
			}
			return o.less(v[0], v[1]), nil
		}, new(func(any, any) bool)))
	}
	return options
}

// nullable is a visitor that replaces each order operator, such as <, by a call of its function in
// orders.
type nullable struct{}

// Visit implements ast.Visitor.
func (nullable) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.BinaryNode)
	if !ok {
		return
	}
	if o, ok := orders[n.Operator]; ok {
		call := &ast.CallNode{Callee: &ast.IdentifierNode{Value: o.name},
			Arguments: []ast.Node{n.Left, n.Right}}
		call.SetType(reflect.TypeFor[bool]())
		ast.Patch(node, call)
	}
}

// run evaluates the program for record i with the virtual machine.
func (e *Evaluator) run(i int) (any, error) {
	clear(e.env)
	if e.program.all {
		if err := e.bindAll(i); err != nil {
			return nil, err
		}
	}
	for s := range e.slots {
		v, err := e.load(s, i)
		if err == nil {
			e.env[e.slots[s].name], err = v.decode()
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", e.slots[s].name, err)
		}
	}
	if e.program.meta {
		meta := map[string]any{"time": e.batch.Time}
		for _, name := range []string{"id", "file", "offset"} {
			meta[name], _ = e.metaValue(name, i).decode() // a 64-bit number or a text
		}
		e.env["meta"] = meta
	}
	out, err := e.vm.Run(e.program.machine, e.env)
	if err != nil {
		return nil, errors.New(problem(err).Message) // without the quoted expression
	}
	return out, nil
}

// bindAll adds all fields of record i to e.env, the variables of the virtual machine.
func (e *Evaluator) bindAll(i int) error {
	for _, f := range e.batch.FieldsOf(i) {
		v, err := fieldValue(e.batch, f)
		if err == nil {
			e.env[e.batch.Names[f.Name]], err = v.decode()
		}
		if err != nil {
			return fmt.Errorf("field %s: %w", e.batch.Names[f.Name], err)
		}
	}
	return nil
}
