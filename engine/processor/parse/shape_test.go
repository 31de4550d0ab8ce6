package parse_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/processor/parse"
	"github.com/penstock-io/penstock/stream"
)

// TestShapeKeepsOrigin checks a config in which parsing the whole text of records would discard the
// source's fields. It must be refused.
func TestShapeKeepsOrigin(t *testing.T) {
	in := stream.UnparsedSchema()
	in.Fields = append(in.Fields, stream.SchemaField{Name: "file"},
		stream.SchemaField{Name: "host"})
	parsed := stream.Schema{Fields: []stream.SchemaField{{Name: "a"}}}
	lost := func(names string) string {
		return "existing fields of the record would be lost (" + names + "); " +
			"add `field: message` to keep them, or remove them"
	}
	for _, c := range []struct {
		name string
		o    parse.Options
		in   stream.Schema
		want string
	}{
		{"whole record", parse.Options{Format: "json"}, in, lost("file, host")},
		{"one is parsed again", parse.Options{Format: "combined"}, in, lost("file")},
		{"the message alone", parse.Options{Format: "json", Field: "message"}, in, ""},
		{"nothing was added", parse.Options{Format: "json"}, stream.UnparsedSchema(), ""},
		{"parsed twice", parse.Options{Format: "json"}, parsed, ""},
	} {
		if err := c.o.Validate(); err != nil {
			t.Fatal(err)
		}
		_, err := c.o.Shape(c.in)
		if err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}
