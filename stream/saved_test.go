package stream

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

// picture is all of a batch that processors and sinks can tell apart.
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
		string(b.Data), slices.Clone(b.Names), slices.Clone(b.Fields), slices.Clone(b.Records), b.changed, b.reasons, b.Kept(),
	}
}

// TestSaveRestore: whatever was done to a batch, at any stage, is undone, again and again.
func TestSaveRestore(t *testing.T) {
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
		b.Bury(0, errors.New("why"))
		b.Payload = append(b.Payload, "payload"...)
		for i := range b.Fields {
			b.Fields[i].Off++
		}
	}
	b := NewBatch(BatchLimits{})
	b.Data = []byte("one\ntwo\nthree\n")
	b.Origins = 3
	b.Spans = []Span{{Part: &Partition{ID: "p"}, Range: Range{To: Position{Num: 14}}, Bytes: 14}}
	var s Saved
	for stage := range 3 { // as it was read, split and parsed, parsed twice
		b.Save(&s)
		want := pictureOf(b)
		for range 2 {
			change(b)
			b.Restore(&s)
			if got := pictureOf(b); !same(got, want) || b.Payload != nil {
				t.Fatalf("stage %d: %+v\nwant %+v", stage, got, want)
			}
		}
		change(b)
	}
}

// same compares pictures; empty and nil are alike.
func same(a, b picture) bool {
	return a.Data == b.Data && slices.Equal(a.Names, b.Names) && slices.Equal(a.Fields, b.Fields) &&
		slices.Equal(a.Records, b.Records) && a.Changed == b.Changed && a.Kept == b.Kept &&
		(len(a.Reasons) == 0 && len(b.Reasons) == 0 || reflect.DeepEqual(a.Reasons, b.Reasons))
}
