package expr

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/penstock-io/penstock/engine/kit/json"
)

// A condition reports whether it is true for record i. An operand returns its value for record i.
type (
	condition func(e *Evaluator, i int) (bool, error)
	operand   func(e *Evaluator, i int) (value, error)
)

// builder compiles expressions that need no virtual machine. Its methods condition and operand
// return nil for other expressions.
type builder struct{ program *Program }

func (b builder) condition(node ast.Node) condition {
	switch n := node.(type) {
	case *ast.BoolNode:
		return func(*Evaluator, int) (bool, error) { return n.Value, nil }
	case *ast.UnaryNode:
		inner := b.condition(n.Node)
		if inner == nil || n.Operator != "!" && n.Operator != "not" {
			return nil
		}
		return func(e *Evaluator, i int) (bool, error) {
			ok, err := inner(e, i)
			return !ok, err
		}
	case *ast.BinaryNode:
		return b.binary(n)
	}
	v := b.operand(node)
	if v == nil {
		return nil
	}
	what, lenient := node.String(), b.program.lenient
	return func(e *Evaluator, i int) (bool, error) {
		got, err := v(e, i)
		if err == nil && got.kind != truth && (!lenient || got.kind != null) {
			err = fmt.Errorf("%s is %s, want true or false", what, kindNames[got.kind])
		}
		return got.kind == truth && got.num != 0, err
	}
}

func (b builder) binary(n *ast.BinaryNode) condition {
	if n.Operator == "and" || n.Operator == "&&" || n.Operator == "or" || n.Operator == "||" {
		left, right := b.condition(n.Left), b.condition(n.Right)
		if left == nil || right == nil {
			return nil
		}
		goOn := n.Operator == "and" || n.Operator == "&&"
		return func(e *Evaluator, i int) (bool, error) {
			if ok, err := left(e, i); err != nil || ok != goOn {
				return ok, err
			}
			return right(e, i)
		}
	}
	if n.Operator == "in" {
		return b.in(n)
	}
	left, right := b.operand(n.Left), b.operand(n.Right)
	if left == nil || right == nil {
		return nil
	}
	both := func(e *Evaluator, i int) (x, y value, err error) {
		if x, err = left(e, i); err == nil {
			y, err = right(e, i)
		}
		return x, y, err
	}
	switch n.Operator {
	case "==", "!=":
		same := n.Operator == "=="
		return func(e *Evaluator, i int) (bool, error) {
			x, y, err := both(e, i)
			if err != nil {
				return false, err
			}
			if x.kind == nested && y.kind == nested {
				return false, fmt.Errorf("%s: arrays and objects cannot be compared", n)
			}
			return equal(x, y) == same, nil
		}
	case "<", "<=", ">", ">=":
		return b.ordered(n, both)
	case "contains", "startsWith", "endsWith":
		return b.search(n, both)
	case "matches":
		return b.matches(n, left)
	}
	return nil
}

func (b builder) ordered(n *ast.BinaryNode,
	both func(*Evaluator, int) (x, y value, err error)) condition {
	lenient := b.program.lenient
	least, most := -1, 1 // the comparison is true if least <= order(x, y) <= most
	switch n.Operator {
	case "<":
		most = -1
	case "<=":
		most = 0
	case ">":
		least = 1
	case ">=":
		least = 0
	}
	return func(e *Evaluator, i int) (bool, error) {
		x, y, err := both(e, i)
		if err != nil {
			return false, err
		}
		c, ok := order(x, y)
		if ok {
			return c >= least && c <= most, nil
		}
		if lenient && (x.kind == null || y.kind == null) {
			return false, nil
		}
		if _, literal := n.Left.(*ast.IdentifierNode); !literal {
			return false, fmt.Errorf("%s: %s and %s cannot be ordered", n, kindNames[x.kind],
				kindNames[y.kind])
		}
		return false, fmt.Errorf("%s: %s is %s, which cannot be ordered relative to %s", n, n.Left,
			kindNames[x.kind], kindNames[y.kind])
	}
}

func (b builder) search(n *ast.BinaryNode,
	both func(*Evaluator, int) (x, y value, err error)) condition {
	find := map[string]func(s, part []byte) bool{
		"contains": bytes.Contains, "startsWith": bytes.HasPrefix, "endsWith": bytes.HasSuffix,
	}[n.Operator]
	return func(e *Evaluator, i int) (bool, error) {
		x, y, err := both(e, i)
		switch {
		case err != nil || x.kind == null || y.kind == null:
			return false, err
		case x.kind != text || y.kind != text:
			return false, fmt.Errorf("%s: %s and %s, but both must be text", n, kindNames[x.kind],
				kindNames[y.kind])
		}
		return find(x.raw, y.raw), nil
	}
}

func (b builder) matches(n *ast.BinaryNode, left operand) condition {
	pattern, ok := n.Right.(*ast.StringNode)
	if !ok {
		return nil
	}
	re, err := regexp.Compile(pattern.Value)
	if err != nil {
		return nil // the library has reported the mistake
	}
	return func(e *Evaluator, i int) (bool, error) {
		x, err := left(e, i)
		switch {
		case err != nil || x.kind == null:
			return false, err
		case x.kind != text:
			return false, fmt.Errorf("%s: %s is %s, but must be text", n, n.Left, kindNames[x.kind])
		}
		return re.Match(x.raw), nil
	}
}

// in compiles an expression that tests whether a value is in a list of literals.
func (b builder) in(n *ast.BinaryNode) condition {
	left := b.operand(n.Left)
	list, ok := n.Right.(*ast.ArrayNode)
	if left == nil || !ok {
		return nil
	}
	var values []value
	for _, item := range list.Nodes {
		v, ok := literal(item)
		if !ok {
			return nil
		}
		values = append(values, v)
	}
	return func(e *Evaluator, i int) (bool, error) {
		x, err := left(e, i)
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(values, func(v value) bool { return equal(x, v) }), nil
	}
}

func literal(node ast.Node) (value, bool) {
	switch n := node.(type) {
	case *ast.NilNode:
		return value{}, true
	case *ast.BoolNode:
		v := value{kind: truth}
		if n.Value {
			v.num = 1
		}
		return v, true
	case *ast.IntegerNode:
		return value{kind: whole, num: int64(n.Value)}, true
	case *ast.FloatNode:
		return value{kind: broken, num: int64(math.Float64bits(n.Value))}, true
	case *ast.StringNode:
		return value{kind: text, raw: []byte(n.Value)}, true
	case *ast.UnaryNode:
		v, ok := literal(n.Node)
		switch {
		case !ok || n.Operator != "-":
		case v.kind == whole:
			return value{kind: whole, num: -v.num}, true
		case v.kind == broken:
			return value{kind: broken, num: int64(math.Float64bits(-v.float()))}, true
		}
	}
	return value{}, false
}

// operand compiles a literal, a field, a member of a field, a member of meta except time, or
// several of these joined by `??`.
func (b builder) operand(node ast.Node) operand {
	if v, ok := literal(node); ok {
		return func(*Evaluator, int) (value, error) { return v, nil }
	}
	if n, ok := node.(*ast.BinaryNode); ok && n.Operator == "??" {
		left, right := b.operand(n.Left), b.operand(n.Right)
		if left == nil || right == nil {
			return nil
		}
		return func(e *Evaluator, i int) (value, error) {
			if v, err := left(e, i); err != nil || v.kind != null {
				return v, err
			}
			return right(e, i)
		}
	}
	path, ok := b.path(node)
	if !ok {
		return nil
	}
	if path[0] == "meta" {
		if len(path) != 2 || path[1] == "time" {
			return nil
		}
		return func(e *Evaluator, i int) (value, error) { return e.metaValue(path[1], i), nil }
	}
	slot := slices.Index(b.program.names, path[0])
	if slot < 0 {
		return nil
	}
	what := strings.Join(path, ".")
	return func(e *Evaluator, i int) (value, error) {
		v, err := e.load(slot, i)
		for k := 1; k < len(path) && err == nil; k++ {
			if v.kind != nested || v.raw[0] != '{' {
				return v, fmt.Errorf("%s: %s is %s, which has no %s", what,
					strings.Join(path[:k], "."), kindNames[v.kind], path[k])
			}
			v, err = e.member(v, path[k])
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return v, err
	}
}

// path returns the path of a field or of a member, such as `request.client.address`.
func (b builder) path(node ast.Node) ([]string, bool) {
	switch n := node.(type) {
	case *ast.IdentifierNode:
		if n.Value == "$env" {
			return nil, false
		}
		return []string{n.Value}, true
	case *ast.MemberNode:
		name, ok := n.Property.(*ast.StringNode)
		if !ok || n.Optional || n.Method {
			return nil, false
		}
		if base, is := n.Node.(*ast.IdentifierNode); is && base.Value == "$env" {
			return []string{name.Value}, name.Value != "meta"
		}
		above, ok := b.path(n.Node)
		return append(above, name.Value), ok
	}
	return nil, false
}

// member returns the value of the member key of the object v, or null if v has no such member.
func (e *Evaluator) member(v value, key string) (value, error) {
	m, ok := e.scan.Member(v.raw, key)
	if !ok {
		return value{}, nil
	}
	raw := v.raw[m.Off : m.Off+m.Len]
	if m.Escaped {
		return value{kind: text, raw: json.AppendUnescaped(nil, raw)}, nil
	}
	return valueOf(m.Kind, raw)
}
