package expr

import (
	"fmt"

	"github.com/expr-lang/expr/vm"

	kitjson "github.com/penstock-io/penstock/engine/kit/json"
	"github.com/penstock-io/penstock/stream"
)

// Evaluator evaluates one program for the records of batches. It must be used by one goroutine. It
// reuses its memory for the next batch.
type Evaluator struct {
	program *Program
	batch   *stream.Batch
	slots   []slot
	env     map[string]any
	vm      vm.VM
	scan    kitjson.Scanner
	id      []byte // id of the record for which meta.id was computed last
	out     []byte
	same    stream.Field // if the program is a literal: its field, which is written once per batch
	written bool         // same is valid
}

// slot is a field that the program reads.
type slot struct {
	name  string
	index uint32 // index in Batch.Names
	have  bool   // the batch has the name
	hint  uint32 // position of the field among the fields of the previous record
}

// NewEvaluator returns an evaluator for p. It returns nil if p is nil.
func NewEvaluator(p *Program) *Evaluator {
	if p == nil {
		return nil
	}
	e := &Evaluator{program: p, env: map[string]any{}, vm: vm.VM{MemoryBudget: MemoryBudget}}
	for _, n := range p.names {
		e.slots = append(e.slots, slot{name: n})
	}
	return e
}

// Begin prepares the evaluator for a batch. Call [stream.Batch.Split] before, which fills
// b.Records. Call Begin again when b.Names, the table of field names, has grown. If e is nil, Begin
// does nothing.
func (e *Evaluator) Begin(b *stream.Batch) {
	if e == nil {
		return
	}
	e.batch, e.written = b, false
	for s := range e.slots {
		e.slots[s].index, e.slots[s].have = b.FindName(e.slots[s].name)
	}
}

// Holds reports whether the condition is true for record i. It returns an error if the condition
// cannot be evaluated for this record.
func (e *Evaluator) Holds(i int) (bool, error) {
	if e.program.condition != nil {
		return e.program.condition(e, i)
	}
	out, err := e.run(i)
	if err != nil {
		return false, err
	}
	ok, is := out.(bool)
	if !is {
		return false, fmt.Errorf("the condition is %v, want true or false", out)
	}
	return ok, nil
}

// field returns the field of record i that belongs to slot s.
func (e *Evaluator) field(s, i int) (stream.Field, bool) {
	b, slot := e.batch, &e.slots[s]
	r := &b.Records[i]
	if !r.Parsed && r.NumFields == 0 {
		return stream.Field{Off: r.Off, Len: r.Len}, slot.name == stream.MessageName
	}
	if !slot.have {
		return stream.Field{}, false
	}
	if slot.hint < r.NumFields {
		if f := b.Fields[r.Field+slot.hint]; f.Name == slot.index {
			return f, true
		}
	}
	for k, f := range b.Fields[r.Field : r.Field+r.NumFields] {
		if f.Name == slot.index {
			slot.hint = uint32(k)
			return f, true
		}
	}
	return stream.Field{}, false
}

// load returns the value of slot s in record i. A missing field is null.
func (e *Evaluator) load(s, i int) (value, error) {
	f, ok := e.field(s, i)
	if !ok {
		return value{}, nil
	}
	return fieldValue(e.batch, f)
}

// metaValue returns a member of meta for record i, except time.
func (e *Evaluator) metaValue(name string, i int) value {
	b := e.batch
	r := &b.Records[i]
	switch name {
	case "file":
		return value{kind: text, raw: []byte(b.Spans[r.Span].Part.Name)}
	case "offset":
		return value{kind: whole, num: start(b, i)}
	}
	e.id = b.AppendRecordID(e.id[:0], i)
	return value{kind: text, raw: e.id}
}

// start returns the offset of the start of record i in its file. This is the end of the previous
// source record or, for the first source record of a span, the start of the span.
func start(b *stream.Batch, i int) int64 {
	r := &b.Records[i]
	for k := i - 1; k >= 0 && b.Records[k].Span == r.Span; k-- {
		if b.Records[k].Origin != r.Origin {
			return b.Records[k].Origin.Num
		}
	}
	return b.Spans[r.Span].From.Num
}

// Field evaluates the program for record i and returns the value as a field. If the program is only
// the name of a field, Field returns this field unchanged, so that a number keeps its digits. Any
// other value, except null, is appended to the batch's data. The caller sets the Name of the
// result.
func (e *Evaluator) Field(i int) (stream.Field, error) {
	if e.program.value == nil {
		out, err := e.run(i)
		if err != nil {
			return stream.Field{}, err
		}
		return e.write(out)
	}
	if len(e.slots) == 1 && e.program.text == e.slots[0].name {
		f, ok := e.field(0, i)
		if !ok {
			return stream.Field{Kind: stream.Null}, nil
		}
		return f, nil
	}
	if e.written {
		return e.same, nil
	}
	v, err := e.program.value(e, i)
	if err != nil {
		return stream.Field{}, err
	}
	f, err := e.keep(v)
	e.same, e.written = f, e.program.literal
	return f, err
}

// keep appends the text of a value to the batch's data, and returns a field that refers to it.
func (e *Evaluator) keep(v value) (stream.Field, error) {
	switch v.kind {
	case null:
		return stream.Field{Kind: stream.Null}, nil
	case whole, broken:
		if v.raw != nil {
			return e.put(stream.Number, v.raw), nil
		}
	case text:
		return e.put(stream.Text, v.raw), nil
	case nested:
		return e.put(stream.JSON, v.raw), nil
	}
	out, err := v.decode()
	if err != nil {
		return stream.Field{}, err
	}
	return e.write(out)
}

func (e *Evaluator) put(k stream.Kind, s []byte) stream.Field {
	off, n := e.batch.AppendData(s)
	return stream.Field{Kind: k, Off: off, Len: n}
}

// AppendText evaluates the program for record i and appends the value to dst as text. It appends
// nothing for null. It does not change the batch.
func (e *Evaluator) AppendText(dst []byte, i int) ([]byte, error) {
	if e.program.value == nil {
		out, err := e.run(i)
		if err != nil {
			return dst, err
		}
		_, dst, err = written(dst, out)
		return dst, err
	}
	v, err := e.program.value(e, i)
	switch {
	case err != nil || v.kind == null:
		return dst, err
	case v.raw != nil && v.kind != truth:
		return append(dst, v.raw...), nil
	}
	out, err := v.decode()
	if err != nil {
		return dst, err
	}
	_, dst, err = written(dst, out)
	return dst, err
}

// write appends a result of the virtual machine to the batch's data, and returns it as a field.
func (e *Evaluator) write(out any) (stream.Field, error) {
	k, dst, err := written(e.out[:0], out)
	if err != nil || k == stream.Null {
		return stream.Field{Kind: k}, err
	}
	e.out = dst
	return e.put(k, dst), nil
}
