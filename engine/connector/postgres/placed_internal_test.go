package postgres

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// laid encodes a batch naively, with Rows.Row, cell by cell.
func laid(s *Sink, b *stream.Batch) (dst []byte, refusals []sqltable.Refusal) {
	e, t := &writer{sink: s}, s.Shape.For(b)
	e.rows.Over(t, b)
	dst = append(dst, binaryHeader...)
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		if reason := e.rows.Row(i); reason != "" {
			refusals = append(refusals, e.rows.Refusal(i, reason))
			continue
		}
		number := -1
		if s.o.Mode == sqltable.Upsert {
			number = i
		}
		dst = e.appendBinaryRow(dst, t.Columns, number)
	}
	return append(dst, binaryTrailer...), refusals
}

// sinkOf returns a sink whose table has a text, an integer, a number and a JSON column.
func sinkOf(t testing.TB, set func(o *Options)) *Sink {
	t.Helper()
	o := *DefaultOptions()
	o.URL, o.Table = "postgres://user@host/database", "t"
	set(&o)
	s, err := New(o, connectortest.NewHost(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Shape.Found([]sqltable.Column{
		{Name: "text", Decl: "text"}, {Name: "other", Decl: "text"},
		{Name: "count", Type: sqltable.Integer, Decl: "bigint"},
		{Name: "amount", Type: sqltable.Number, Decl: "numeric"},
		{Name: "more", Type: sqltable.JSON, Decl: "jsonb"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// texts are field values: short and long texts, numbers of every length, and bytes that are not
// valid text.
var texts = []string{
	"", "-", "a", "GET", "fifteen bytes..", "sixteen bytes...", "seventeen bytes..",
	"thirty-two bytes, not one more..",
	"longer than any text that is copied in words: Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1)",
	"ä", "\x00", "\xff",
	"0", "7", "-7", "1234567", "12345678", "123456789", "999999999999999999", "9223372036854775807",
	"9223372036854775808", "1e3", "1.5",
	"00", "1234567:", "12 4", "true", "{}",
}

// randomBatch returns records with fields in several orders; most repeat the order of the previous
// record.
func randomBatch(random *rand.Rand) *stream.Batch {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Names = []string{"text", "count", "other", "amount", "more", "unknown", "_extra"}
	clean := random.IntN(2) == 0
	var form []uint32
	for i := range 1 + random.IntN(30) {
		if i == 0 || random.IntN(5) == 0 {
			form = form[:0]
			for _, k := range random.Perm(len(b.Names))[:random.IntN(len(b.Names)+1)] {
				form = append(form, uint32(k))
			}
			if random.IntN(10) == 0 && len(form) > 0 {
				form = append(form, form[0]) // a repeated field, which no processor produces
			}
		}
		r := stream.Record{Field: uint32(len(b.Fields)), NumFields: uint32(len(form)), Parsed: true}
		for _, name := range form {
			text := texts[random.IntN(len(texts))]
			f := stream.Field{Name: name, Kind: stream.Kind(random.IntN(int(stream.JSON) + 1)),
				Off: uint32(len(b.Data))}
			switch {
			case f.Kind == stream.Null:
				text = ""
			case f.Kind == stream.Bool:
				text = "true"
			case f.Kind == stream.JSON:
				text = "[1]"
			case f.Kind == stream.Number && random.IntN(2) == 0:
				text = strconv.Itoa(random.IntN(1 << (1 + random.IntN(40))))
			case clean && (text == "\x00" || text == "\xff"):
				text = "clean"
			}
			f.Len = uint32(len(text))
			b.Data = append(b.Data, text...)
			b.Fields = append(b.Fields, f)
		}
		b.Records = append(b.Records, r)
	}
	if random.IntN(2) == 0 {
		// otherwise the last fields end at the end of the arena
		b.Data = append(b.Data, bytes.Repeat([]byte{'\n'}, blindCopy)...)
	}
	return b
}

// TestPlacedRowsAreLaidRows checks that the encoder, which encodes most rows directly from the
// memory of the batch, returns the same rows as sqltable.Rows, and refuses the same records.
func TestPlacedRowsAreLaidRows(t *testing.T) {
	const seed, batches = 9, 3000
	random := rand.New(rand.NewPCG(seed, 0))
	var sinks []*Sink
	for _, policy := range []string{"ignore", "json_column", "dead_letter"} {
		for _, key := range [][]string{nil, {"text"}, {"count", "other"}} {
			sinks = append(sinks, sinkOf(t, func(o *Options) {
				o.OnNewField, o.JSONColumn = policy, "more"
				if key != nil {
					o.Mode, o.Key = sqltable.Upsert, key
				}
			}))
		}
	}
	var e writer
	var dst []byte
	for n := range batches {
		b := randomBatch(random)
		s := sinks[n%len(sinks)]
		want, refused := laid(s, b)
		var refusals []sqltable.Refusal
		if n%5 == 0 {
			dst = nil
		}
		e.sink = s
		dst, refusals = e.Encode(dst[:0], b)
		if !bytes.Equal(dst, want) || fmt.Sprint(refusals) != fmt.Sprint(refused) {
			t.Fatalf("seed %d, batch %d, %s %s %v:\n%q, refused %v; laid\n%q, refused %v",
				seed, n, s.o.OnNewField, s.o.Mode, s.o.Key, dst, refusals, want, refused)
		}
	}
}

// FuzzShortInteger compares shortInteger with strconv.
func FuzzShortInteger(f *testing.F) {
	for _, text := range texts {
		f.Add(text, " tail of the line")
	}
	f.Fuzz(func(t *testing.T, text, tail string) {
		got, ok := shortInteger([]byte("x"+text+tail), 1, len(text))
		want, err := strconv.ParseUint(text, 10, 64)
		if want := err == nil && len(text) <= eight && len(text)+len(tail) >= eight; ok != want {
			t.Errorf("%q before %q: read: %v, want %v", text, tail, ok, want)
		}
		if ok && got != want {
			t.Errorf("%q is read as %d", text, got)
		}
	})
}

// TestEncodingAllocatesNothing checks that encoding into existing memory allocates only a few
// slices of Rows.
func TestEncodingAllocatesNothing(t *testing.T) {
	b := stream.NewBatch(stream.BatchLimits{})
	b.Names = []string{"text", "count"}
	for range 1000 {
		off := uint32(len(b.Data))
		b.Data = append(b.Data, "some text of a line 200\n"...)
		b.Records = append(b.Records, stream.Record{Field: uint32(len(b.Fields)), NumFields: 2,
			Parsed: true})
		b.Fields = append(b.Fields, stream.Field{Off: off, Len: 19},
			stream.Field{Name: 1, Kind: stream.Number, Off: off + 20, Len: 3})
	}
	s := sinkOf(t, func(o *Options) { o.OnNewField = "ignore" })
	e := writer{sink: s}
	dst, refusals := e.Encode(nil, b)
	if len(refusals) > 0 {
		t.Fatal(refusals)
	}
	if n := testing.AllocsPerRun(20, func() { dst, _ = e.Encode(dst[:0], b) }); n != 0 {
		t.Errorf("%v allocations for 1000 records", n)
	}
}
