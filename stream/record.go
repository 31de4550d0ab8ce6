package stream

import "github.com/penstock-io/penstock/flow/ledger"

// Position is the position of an item in a source. See [ledger.Position].
type Position = ledger.Position

// Range is the half-open range (From, To] of one partition. See [ledger.Range].
type Range = ledger.Range

// Partition is an ordered part of a source with its own positions: a file, a table, a topic
// partition.
type Partition struct {
	// ID is assigned when the partition is first found. It stays the same while the data grows, and
	// is never reused for other data. It is printable ASCII without space, comma, semicolon, '@'
	// and '"', at most 200 bytes.
	ID string
	// Name is for people and may change, like the name of a file.
	Name string
	// RecordPrefix is the beginning of the ids of the records in the partition. Empty means ID. Set
	// it if the same record may appear in several partitions, such as a message that a broker
	// redelivers in another partition. Partitions with the same prefix must have the same records
	// at the same positions.
	RecordPrefix string
}

// Span is a range of one partition that a batch covers. Each span of a partition begins at the end
// of the previous one, or after settled ranges that were skipped.
type Span struct {
	Part *Partition
	Range
	// the number of bytes of the span in [Batch.Data], line ends included; the spans' bytes follow
	// each other in Data
	Bytes int
	Last  bool // sealed: nothing follows To in this partition
	// Verbatim means that the span's bytes in Data are the bytes of the source from From.Num to
	// To.Num. The Reader may have added a line end after them.
	Verbatim bool

	Assignment uint32 // of a partition that a broker has assigned, see [Assignments]; else 0

	// Identities are the parts of the span in which records have ids of another partition, in
	// ascending order. They must not change after the batch was read.
	Identities []Identity
}

// Identity replaces the ids of the records in a part of a span by ids with another prefix and other
// positions. An example is a request with an idempotency key. If its client sends it twice, the two
// copies are stored at different positions, but their records must have the same ids.
type Identity struct {
	// From and To bound the part. It contains the records at positions above From and up to To.
	From, To int64
	Prefix   string // in place of the partition's id
	// First and Last replace From and To in the ids. The positions in between are counted from
	// First. Example: From 10, To 13, First 0 and Last 3. The id of the record at position 11 has
	// position 1.
	First, Last int64
}

// State is the state of a record after the processing of its batch.
type State uint8

// The states of a record.
const (
	Kept    State = iota // goes to the sink
	Dropped              // dropped by a processor; settles as dropped
	Dead                 // a dead letter; settles once it is durable
)

// Record describes one record of a batch. It contains offsets instead of text, and has a size of 56
// bytes on 64-bit systems.
type Record struct {
	Off, Len         uint32 // the text in Batch.Data, without its line end
	Field, NumFields uint32 // Batch.Fields[Field : Field+NumFields]
	Span, Sub        uint32 // Batch.Spans[Span]; the nth record made from the same origin, from 0
	State            State  //
	// the record was parsed into fields, possibly none; otherwise its only field is message, its
	// text; see [Batch.SetFields]
	Parsed bool
	// position of its source record; with Span and Sub it identifies the record
	Origin Position
}

// Kind is the type of a field's value in its original form.
type Kind uint8

// The kinds of a field.
const (
	Text   Kind = iota // characters, neither quoted nor escaped
	Number             // the original digits, parsed only on demand
	Bool               // true or false
	Null               // no value; Len is 0
	// an array or object, in its original text. Or a quoted string that cannot be UTF-8 text,
	// because it contains a lone surrogate
	JSON
)

// Field is one named value of a record, in its original text. It has a size of 16 bytes.
type Field struct {
	Name uint32 // index into Batch.Names
	Kind Kind
	// the text is known to contain no quote and no backslash; false if not checked
	Bare     bool
	Off, Len uint32 // in Batch.Data
}
