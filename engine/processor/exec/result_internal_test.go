package exec

import (
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// TestResultsKeepText checks that each record in a result has a text. If such a record becomes a
// dead letter, only its text is stored.
func TestResultsKeepText(t *testing.T) {
	fields := func(value string) result {
		return result{fields: []field{{name: "n", value: []byte(value)}}}
	}
	for _, c := range []struct {
		name    string
		results []result
		want    []string
	}{
		{"fields", []result{fields("1"), fields("2")}, []string{"a b", "a b"}},
		{"fields and texts", []result{{text: []byte("b")}, fields("2"), {text: []byte("c")}},
			[]string{"b", "a b", "c"}},
	} {
		b := &stream.Batch{Data: []byte("a b\n")}
		b.Spans = []stream.Span{{Part: &stream.Partition{ID: "p"}, Bytes: 4,
			Range: stream.Range{To: stream.Position{Num: 4}}}}
		b.Split()
		apply(b, []*state{{done: true, results: c.results}})
		if len(b.Records) != len(c.want) {
			t.Fatalf("%s: %d records, want %d", c.name, len(b.Records), len(c.want))
		}
		for i, want := range c.want {
			if got := string(b.Text(i)); got != want {
				t.Errorf("%s: record %d has the text %q, want %q", c.name, i, got, want)
			}
		}
	}
}
