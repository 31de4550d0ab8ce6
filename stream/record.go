package stream

import "github.com/penstock-io/penstock/flow/ledger"

// Position is the source's own mark of an item; see [ledger.Position].
type Position = ledger.Position

// Range is the half-open stretch (From, To] of one partition; see [ledger.Range].
type Range = ledger.Range

// Partition is an ordered stretch of a source with positions of its own: a file, a table, a topic
// partition.
type Partition struct {
	// ID is given at first sight, stays the same while the data grows, and is never reused for other
	// data. Printable ASCII without space, comma, semicolon, '@' and '"'; at most 200 bytes.
	ID string
	// Name is for people and may change, as a file's name does.
	Name string
}

// Span is what a batch covers of one partition. The spans of a partition tile it: each From is the
// To before it, settled ranges skipped.
type Span struct {
	Part *Partition
	Range
	Bytes int  // how many bytes of [Batch.Data] belong to it, line ends included; the spans' bytes lie in order
	Last  bool // sealed: nothing follows To in this partition

	Assignment uint32 // of a partition that a broker has assigned, see [Assignments]; else 0
}

// State says what has become of a record while its batch was processed.
type State uint8

// The states of a record.
const (
	Kept    State = iota // goes to the sink
	Dropped              // a processor left it out; settles as dropped
	Dead                 // a dead letter; settles once the letter is durable
)

// Record is a view of one record of a batch: offsets, never bytes. 72 bytes.
type Record struct {
	Off, Len         uint32   // the text in Batch.Data, without its line end
	Field, NumFields uint32   // Batch.Fields[Field : Field+NumFields]
	Span, Sub        uint32   // Batch.Spans[Span]; the nth record made from the same origin, from 0
	State            State    //
	Parsed           bool     // it was given fields, be it none; else it has one, message, which is its text; see [Batch.SetFields]
	Origin           Position // of the source record it comes from; with Span and Sub the record's id, whatever it became
}

// Kind is the type of a field's value as it was written.
type Kind uint8

// The kinds of a field.
const (
	Text   Kind = iota // characters; not quoted, not escaped
	Number             // the digits as they were written; parsed only when asked
	Bool               // true or false
	Null               // no value; Len is 0
	JSON               // an array or object as it was written; or a string, quotes included, that no UTF-8 text can be (a lone surrogate)
)

// Field is one named value of a record: its text stays as it was written. 16 bytes.
type Field struct {
	Name     uint32 // index into Batch.Names
	Kind     Kind
	Bare     bool   // the text holds no quote and no backslash, as who cut it out has seen; false: nobody has looked
	Off, Len uint32 // in Batch.Data
}
