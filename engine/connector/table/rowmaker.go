//penstock:pure

package table

import (
	"encoding/hex"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// rowMaker makes records from rows. The text of a record is the row as a JSON object on one line;
// it is used in dead letters and raw formats. The fields of the record are the columns, with their
// values before JSON escapes them. If a value is in the text unchanged, its field refers to the
// text. Otherwise the field refers to a copy, which is stored after all texts.
type rowMaker struct {
	names   []string
	labels  [][]byte // `{"id":`, `,"at":`
	types   []string
	batch   *stream.Batch
	start   int // start of its text
	column  int
	side    []byte // values that are not in the text unchanged
	moved   []int  // fields that refer to side
	scratch []byte
	perRow  int // average bytes of recent rows; 0 if unknown
}

func newRowMaker(r *relation) rowMaker {
	var m rowMaker
	for i, c := range r.columns {
		lead := ","
		if i == 0 {
			lead = "{"
		}
		m.names, m.types = append(m.names, c.name), append(m.types, c.standard)
		m.labels = append(m.labels, append(ndjson.AppendString([]byte(lead), c.name), ':'))
	}
	return m
}

// begin prepares m to add the following rows to b. b must be empty. All its rows must be of one
// relation, because a batch has only one list of names.
func (m *rowMaker) begin(b *stream.Batch) {
	m.batch = b
	b.Names = append(b.Names[:0], m.names...)
	b.Types = append(b.Types[:0], m.types...)
}

// row begins a row. Calls that add its values follow, and then end.
func (m *rowMaker) row() {
	m.start, m.column = len(m.batch.Data), 0
}

func (m *rowMaker) add(kind stream.Kind, off, n int) {
	m.batch.Fields = append(m.batch.Fields, stream.Field{
		Name: uint32(m.column), Kind: kind, Off: uint32(off), Len: uint32(n),
	})
	m.column++
}

func (m *rowMaker) label() { m.batch.Data = append(m.batch.Data, m.labels[m.column]...) }

func (m *rowMaker) null() {
	m.label()
	m.batch.Data = append(m.batch.Data, "null"...)
	m.add(stream.Null, len(m.batch.Data), 0)
}

// addApart adds a field with a value that is not in the text unchanged. finish will store the value
// after the texts.
func addApart[T []byte | string](m *rowMaker, kind stream.Kind, value T) {
	m.moved = append(m.moved, len(m.batch.Fields))
	m.add(kind, len(m.side), len(value))
	m.side = append(m.side, value...)
}

func addText[T []byte | string](m *rowMaker, value T) {
	m.label()
	from := len(m.batch.Data)
	m.batch.Data = ndjson.AppendString(m.batch.Data, value)
	if len(m.batch.Data)-from == len(value)+2 {
		m.add(stream.Text, from+1, len(value))
		return
	}
	addApart(m, stream.Text, value) // the text contains escapes
}

func (m *rowMaker) text(value []byte) { addText(m, value) }

// addPlain adds a value that needs no quotes, such as a number.
func addPlain[T []byte | string](m *rowMaker, kind stream.Kind, value T) {
	m.label()
	m.add(kind, len(m.batch.Data), len(value))
	m.batch.Data = append(m.batch.Data, value...)
}

// number adds a number. A value that is not a JSON number, such as NaN, becomes a text. Zeros before
// the first digit are omitted, because JSON does not allow them. MySQL adds them to a ZEROFILL
// column.
func (m *rowMaker) number(value []byte) {
	if c := value[len(value)-1]; c < '0' || c > '9' {
		m.text(value)
		return
	}
	for len(value) > 1 && value[0] == '0' && value[1] >= '0' && value[1] <= '9' {
		value = value[1:]
	}
	addPlain(m, stream.Number, value)
}

func (m *rowMaker) json(value []byte) {
	m.label()
	from := len(m.batch.Data)
	m.batch.Data = ndjson.AppendValue(m.batch.Data, stream.JSON, value)
	if string(m.batch.Data[from:]) == string(value) {
		m.add(stream.JSON, from, len(value))
		return
	}
	addApart(m, stream.JSON, value)
}

// bytes adds raw bytes in PostgreSQL's format: \x and two hexadecimal digits per byte.
func (m *rowMaker) bytes(value []byte) {
	m.scratch = hex.AppendEncode(append(m.scratch[:0], `\x`...), value)
	m.text(m.scratch)
}

// value adds a value as the database formats it.
func (m *rowMaker) value(kind valueKind, value []byte) {
	switch {
	case value == nil:
		m.null()
	case kind == numberValue && len(value) > 0:
		m.number(value)
	case kind == boolValue && len(value) > 0 && strings.IndexByte("tT1", value[0]) >= 0:
		addPlain(m, stream.Bool, "true")
	case kind == boolValue:
		addPlain(m, stream.Bool, "false")
	case kind == jsonValue && len(value) > 0:
		m.json(value)
	case kind == bytesValue:
		m.bytes(value)
	default:
		m.text(value)
	}
}

// drop removes the last row.
func (m *rowMaker) drop() {
	fields := m.batch.Fields
	to := stream.SavepointBefore(m.batch, len(m.batch.Records)-1)
	m.batch.RollbackTo(&to)
	last := len(m.moved)
	for last > 0 && m.moved[last-1] >= len(m.batch.Fields) {
		last--
		m.side = m.side[:fields[m.moved[last]].Off]
	}
	m.moved = m.moved[:last]
}

// firstRows is the number of rows to request while their size is unknown.
const firstRows = 200

// guess returns the number of rows to request so that their records take about the given number of
// bytes. It never returns more than the parameter most.
func (m *rowMaker) guess(most, bytes int) int {
	n := firstRows
	if m.perRow > 0 {
		n = (bytes-m.size())/m.perRow*9/8 + 16
	}
	return max(1, min(n, most))
}

// learn sets the average size of a row, from the size in bytes of the given number of rows.
func (m *rowMaker) learn(rows, bytes int) {
	if rows > 0 {
		m.perRow = max(1, bytes/rows)
	}
}

// end completes the row. The caller must set the Origin of its record.
func (m *rowMaker) end(span uint32) {
	b := m.batch
	if m.column == 0 {
		b.Data = append(b.Data, '{')
	}
	b.Data = append(b.Data, '}', '\n')
	b.Records = append(b.Records, stream.Record{
		Off: uint32(m.start), Len: uint32(len(b.Data) - m.start - 1),
		Field: uint32(len(b.Fields) - m.column), NumFields: uint32(m.column),
		Span: span, Parsed: true,
	})
	b.Origins++
}

// size returns the number of bytes in the batch, including the values that finish will store after
// the texts.
func (m *rowMaker) size() int { return len(m.batch.Data) + len(m.side) }

// finish copies the values that addApart has collected into the data of the batch, after the texts
// of the records. Call it once, when the batch is complete.
func (m *rowMaker) finish() {
	base := uint32(len(m.batch.Data))
	for _, f := range m.moved {
		m.batch.Fields[f].Off += base
	}
	m.batch.Data = append(m.batch.Data, m.side...)
	m.side, m.moved = m.side[:0], m.moved[:0]
}
