package httpserver

import (
	"encoding/json"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// read returns the records in the form that a route reads.
func read(t *testing.T, records intake.Records, objects bool) (out [][]byte) {
	t.Helper()
	h := streamtest.NewQuiet(vfs.OS(), nil, func(string) bool { return false })
	in, err := intake.New(intake.Options{Objects: objects}, h)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := in.Open(t.Context(), stream.OpenOptions{
		Route: streamtest.Route, Resume: func(string) (stream.Mark, bool) { return stream.Mark{}, false },
	})
	if err != nil {
		t.Fatal(err)
	}
	n := records.Len()
	if err := in.Add(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	for len(out) < n {
		b := stream.NewBatch(stream.BatchLimits{})
		if err := reader.Read(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		b.Split()
		for i := range b.Records {
			if b.Records[i].State != stream.Kept {
				t.Errorf("record %q is no object: %v", b.Text(i), b.Reason(i))
			}
			out = append(out, b.Text(i))
		}
	}
	return out
}

// formats lists the formats in the order of the fuzzer's corpus.
var formats = []string{Lines, NDJSON, JSONArray, Bulk, Loki, OTLP}

// FuzzDecoders checks that for any body, records of JSON formats are JSON objects, no record is too
// long, and the response is valid.
func FuzzDecoders(f *testing.F) {
	for _, body := range []string{
		"", "a\nb\n", `{"a":1}`, `[{"a":1},{"b":"]"}]`,
		"{\"index\":{\"_index\":\"x\"}}\n{\"a\":1}\n", "{\"delete\":{}}\n",
		`{"streams":[{"stream":{"a":"b"},"values":[["1","x"]]}]}`, "\x0a\x06\x0a\x02{}\x12\x00",
		`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}`,
	} {
		for i := range formats {
			f.Add(i, body, true)
			f.Add(i, body, false)
		}
	}
	f.Fuzz(func(t *testing.T, which int, body string, asJSON bool) {
		format := formats[uint(which)%uint(len(formats))]
		contentType := typeProtobuf
		if asJSON {
			contentType = typeJSON
		}
		const most = 1000
		d, err := decoders[format](contentType, []byte(body), most, func(int64) error { return nil })
		if err != nil {
			return
		}
		if d.reply.contentType == typeJSON && !json.Valid(d.reply.body) {
			t.Errorf("%s: the answer %q is not JSON", format, d.reply.body)
		}
		for _, record := range read(t, d.records, format != Lines) {
			if len(record) > most {
				t.Errorf("%s: a record of %d bytes", format, len(record))
			}
			if format != Lines && !json.Valid(record) {
				t.Errorf("%s: the record %q is not JSON", format, record)
			}
		}
	})
}
