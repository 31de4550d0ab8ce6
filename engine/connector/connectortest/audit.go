package connectortest

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// AuditCase describes a sink that writes to a database, for [Audit].
type AuditCase struct {
	Sink   func(t *testing.T, h stream.Host) stream.Sink // for table "audited"
	Upsert bool                                          // with the key "id"
	Exec   func(t *testing.T, statement string)
}

// auditRecords have values of every kind. Two records are equal.
var auditRecords = []string{
	`{"id":"a","n":12345678901234567890.5,"i":-7,"b":true,"j":{"a":[1,null]},"t":"it's ☃"}`,
	`{"id":"b","n":0.1,"i":0,"b":false,"j":[],"t":""}`,
	`{"id":"c","n":null,"i":9223372036854775807,"b":null,"j":null,"t":"a"}`,
	`{"id":"d","n":1.10,"i":1,"b":true,"j":{"z": 1},"t":"A","more":"in the JSON column"}`,
	`{"id":"e","n":2.5,"i":5,"b":true,"j":{},"t":"twice"}`,
	`{"id":"e","n":2.5,"i":5,"b":true,"j":{},"t":"twice"}`,
}

// Audit checks that a sink's audit finds differences. It audits a correct table. Then it deletes a
// row, and audits again. Without Upsert, it also repeats a row and changes a row, and audits after
// each change.
func Audit(t *testing.T, c AuditCase) {
	newSink := func(t *testing.T, h *streamtest.Host) stream.Sink { return c.Sink(t, h) }
	l := live(t, Receiver{New: newSink}, "")
	delivered := Records(t, auditRecords...)
	l.encode(delivered)
	l.must(delivered)
	l.end()
	missing := func(i int, n int64) stream.AuditDifference {
		id := string(delivered.AppendRecordID(nil, i))
		return stream.AuditDifference{RecordID: id, Missing: n}
	}
	steps := []auditStep{{"sound", "", nil}}
	if c.Upsert {
		steps = append(steps, auditStep{"key deleted", "DELETE FROM audited WHERE id = 'd'",
			[]stream.AuditDifference{missing(3, 1)}})
	} else {
		steps = append(steps,
			auditStep{"row deleted", "DELETE FROM audited WHERE id = 'd'",
				[]stream.AuditDifference{missing(3, 1)}},
			auditStep{"row repeated", "INSERT INTO audited SELECT * FROM audited WHERE id = 'b'",
				[]stream.AuditDifference{missing(1, -1), missing(3, 1)}},
			auditStep{"row of others", "UPDATE audited SET t = 'a' WHERE id = 'a'",
				[]stream.AuditDifference{
					missing(0, 1), missing(1, -1), missing(3, 1),
				}})
	}
	for _, step := range steps {
		if step.statement != "" {
			c.Exec(t, step.statement)
		}
		if got := audited(t, c); !slices.Equal(got, step.want) {
			t.Errorf("%s: differences %v, want %v", step.name, got, step.want)
		}
	}
}

type auditStep struct {
	name, statement string
	want            []stream.AuditDifference
}

// audited runs an audit and returns the differences in the order of the records. It also checks
// that the ledger has all records as delivered.
func audited(t *testing.T, c AuditCase) (all []stream.AuditDifference) {
	t.Helper()
	sink, ok := c.Sink(t, NewHost(t)).(stream.AuditedSink)
	if !ok {
		t.Fatal("the sink is no AuditedSink")
	}
	a, err := sink.Audit(t.Context(), stream.SinkOptions{Pipeline: "suite", Route: "main"})
	if err != nil {
		t.Fatalf("Audit: %v", err)
	}
	defer a.Close()
	b := Records(t, auditRecords...)
	marks, ok, err := a.Ledger(t.Context())
	if err != nil || !ok || len(marks) != 1 || marks[0].Watermark.Compare(b.Spans[0].To) < 0 {
		t.Errorf("the ledger has %v, %v, %v; want one mark up to %v", marks, ok, err, b.Spans[0].To)
	}
	if err := a.Expect(t.Context(), b); err != nil {
		t.Fatalf("Expect: %v", err)
	}
	if b.Kept() != len(auditRecords) {
		t.Errorf("%d of %d records are expected", b.Kept(), len(auditRecords))
	}
	err = a.Compare(t.Context(), func(d stream.AuditDifference) error {
		all = append(all, d)
		return nil
	})
	if err != nil {
		t.Fatalf("Compare: %v", err)
	}
	slices.SortFunc(all, func(a, b stream.AuditDifference) int {
		return cmp.Or(cmp.Compare(len(a.RecordID), len(b.RecordID)),
			strings.Compare(a.RecordID, b.RecordID))
	})
	return all
}
