package stream

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

// picture is a copy of the parts of a batch that processors and sinks can see.
type picture struct {
	Data    string
	Names   []string
	Fields  []Field
	Records []Record
	Changed bool
	Reasons map[int]error
	Kept    int
}

func pictureOf(b *Batch) picture {
	return picture{
		string(b.Data), slices.Clone(b.Names), slices.Clone(b.Fields), slices.Clone(b.Records),
		b.changed, b.reasons, b.Kept(),
	}
}

// TestSavepointCopy checks that RollbackTo undoes all changes since Copy, even twice in a row. It
// does so for an unparsed batch, for a parsed one, and for one that was parsed twice.
func TestSavepointCopy(t *testing.T) {
	change := func(b *Batch) {
		b.Split()
		from := b.OpenFields(0)
		b.Fields = append(b.Fields, Field{Name: b.Name("more")})
		b.SetFields(0, from)
		extra := make([]int, len(b.Records))
		extra[1] = 1
		b.Expand(extra)
		b.AppendData([]byte("written"))
		b.Drop(2)
		b.DeadLetter(0, errors.New("why"))
		b.Payload = append(b.Payload, "payload"...)
		for i := range b.Fields {
			b.Fields[i].Off++
		}
	}
	b := NewBatch(BatchLimits{})
	b.Data = []byte("one\ntwo\nthree\n")
	b.Origins = 3
	b.Spans = []Span{{Part: &Partition{ID: "p"}, Range: Range{To: Position{Num: 14}}, Bytes: 14}}
	var s Savepoint
	for stage := range 3 { // unparsed, split and parsed, parsed twice
		s.Copy(b)
		want := pictureOf(b)
		for range 2 {
			change(b)
			b.RollbackTo(&s)
			if got := pictureOf(b); !same(got, want) || b.Payload != nil {
				t.Fatalf("stage %d: %+v\nwant %+v", stage, got, want)
			}
		}
		change(b)
	}
}

// same compares pictures; empty and nil are equal.
func same(a, b picture) bool {
	return a.Data == b.Data && slices.Equal(a.Names, b.Names) && slices.Equal(a.Fields, b.Fields) &&
		slices.Equal(a.Records, b.Records) && a.Changed == b.Changed && a.Kept == b.Kept &&
		(len(a.Reasons) == 0 && len(b.Reasons) == 0 || reflect.DeepEqual(a.Reasons, b.Reasons))
}

// TestSavepoint checks that RollbackTo removes data appended by a reader, including the extension
// of a span. With SavepointBefore it removes the last record.
func TestSavepoint(t *testing.T) {
	part := &Partition{ID: "p"}
	b := NewBatch(BatchLimits{})
	row := func(text string) {
		off, field := uint32(len(b.Data)), uint32(len(b.Fields))
		b.Data = append(b.Data, text...)
		b.Fields = append(b.Fields, Field{Name: b.Name(text), Off: off, Len: 1})
		b.Types = append(b.Types, "text")
		b.Records = append(b.Records, Record{Off: off, Len: uint32(len(text)), Field: field,
			NumFields: 1, Parsed: true})
		b.Origins++
	}
	row("one")
	b.Spans = append(b.Spans, Span{Part: part, Bytes: 3})
	s, want := b.Savepoint(), pictureOf(b)
	span := b.Spans[0]
	for range 2 {
		b.Spans[0].Bytes, b.Spans[0].Last = 6, true
		b.Spans = append(b.Spans, Span{Part: part})
		b.Added++
		row("two")
		before := pictureOf(b)
		row("three")
		last := SavepointBefore(b, 2)
		b.RollbackTo(&last)
		before.Names = append(before.Names, "three") // an additional name changes no record
		if got := pictureOf(b); !same(got, before) || b.Origins != 2 || len(b.Spans) != 2 {
			t.Fatalf("without the last record %+v, %d origins\nwant %+v, 2", got, b.Origins, before)
		}
		b.RollbackTo(&s)
		if got := pictureOf(b); !same(got, want) || b.Origins != 1 || b.Added != 0 ||
			len(b.Types) != 1 ||
			len(b.Spans) != 1 || !reflect.DeepEqual(b.Spans[0], span) {
			t.Fatalf("%+v, %d origins, %d added, spans %+v\nwant %+v", got, b.Origins, b.Added,
				b.Spans, want)
		}
	}
}
