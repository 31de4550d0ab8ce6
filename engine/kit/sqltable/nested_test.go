package sqltable_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

var dialect = &sqltable.Dialect{
	MaxName: 63, MaxColumns: 10, UTF8: true, NoNUL: true,
	TypeOf: func(string) sqltable.Type { return sqltable.Other },
}

// TestNestedColumns checks a column with dots in its name, such as a.b. It must get the value of
// the flat field "a.b", or without this field the member b of the field a. A column with a quoted
// name must get only the flat field.
func TestNestedColumns(t *testing.T) {
	records := []string{
		`{"user":{"email":"in","n":1},"user.email":"flat"}`, `{"user":{"email":"in\n","n":2.5}}`,
		`{"user":{"email":null,"n":"x"}}`,
		`{"user":{"email":"a","email":"last"},"user.n":7}`,
		`{"user.email":null,"user":{"email":"in"}}`, `{"user":"text"}`, `{"x":1}`,
		`{"user":{"email":{"home":[1]}}}`, `{"user":{"email":"\u0000"}}`,
	}
	for _, c := range []struct {
		columns []sqltable.ColumnOption
		want    []string
	}{
		{[]sqltable.ColumnOption{{Name: "user.email"}}, []string{
			"flat", "in\n", "NULL", "last", "NULL", "NULL", "NULL", `{"home":[1]}`,
			`refused: field "user.email" has a NUL byte, which the database cannot store in text`,
		}},
		{[]sqltable.ColumnOption{{Name: `"user.email"`}}, []string{
			"flat", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL",
		}},
		{[]sqltable.ColumnOption{{Name: "user.n", Type: "integer"}, {Name: "user", Type: "json"}},
			[]string{
				`1 {"email":"in","n":1}`,
				`refused: field "user.n" has a number, which its column cannot store ` +
					`(whole numbers ` +
					`of 64 bits)`,
				`refused: field "user.n" has a text, which its column cannot store ` +
					`(whole numbers ` +
					`of 64 bits)`,
				`7 {"email":"a","email":"last"}`, `NULL {"email":"in"}`, `NULL "text"`, "NULL NULL",
				`NULL {"email":{"home":[1]}}`,
				`NULL {"email":"\u0000"}`,
			}},
	} {
		o := sqltable.DefaultOptions()
		o.Table, o.Columns = "t", c.columns
		if err := o.Validate(dialect); err != nil {
			t.Fatal(err)
		}
		b := connectortest.Records(t, records...)
		shape := sqltable.NewShape(dialect, &o)
		if _, err := shape.Found(nil); err != nil {
			t.Fatal(err)
		}
		var rows sqltable.Rows
		rows.Over(shape.For(b), b)
		var got []string
		for i := range b.Records {
			if places, _ := rows.Places(b.FieldsOf(i)); places != nil &&
				c.columns[0].Name != `"user.email"` {
				t.Errorf("the places of %s are known by the names of its fields", records[i])
			}
			got = append(got, laid(&rows, i))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v:\n got %q\nwant %q", c.columns, got, c.want)
		}
	}
}

// laid returns the row of a record as text.
func laid(rows *sqltable.Rows, i int) (out string) {
	if refusal := rows.Row(i); refusal != "" {
		return "refused: " + refusal
	}
	for k, cell := range rows.Cells {
		if k > 0 {
			out += " "
		}
		if cell == nil {
			out += "NULL"
		} else {
			out += string(cell)
		}
	}
	return out
}

// TestColumnsShape checks that columns that no field can fill are refused if the fields are known.
func TestColumnsShape(t *testing.T) {
	in := stream.Schema{Fields: []stream.SchemaField{
		{Name: "host", Type: stream.TextType}, {Name: "user", Type: stream.JSONType},
		{Name: "a.b", Type: stream.TextType},
	}}
	for _, c := range []struct{ column, want string }{
		{"host", "<nil>"}, {"user.email", "<nil>"}, {"a.b", "<nil>"}, {`"a.b"`, "<nil>"},
		{"hots", `columns[0]: there is no field "hots"`},
		{"host.name", "columns[0]: host is a text, which has no member name"},
		{`"user.email"`, `columns[0]: there is no field "\"user.email\""`},
	} {
		o := sqltable.Options{Columns: []sqltable.ColumnOption{{Name: c.column}}}
		if _, err := o.Shape(in); fmt.Sprint(err) != c.want {
			t.Errorf("%s: %v, want %s", c.column, err, c.want)
		}
		open := in.Clone()
		open.Open = true
		if _, err := o.Shape(open); err != nil {
			t.Errorf("%s, where any field may come: %v", c.column, err)
		}
	}
}
