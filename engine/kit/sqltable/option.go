//penstock:pure

package sqltable

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/fieldname"
	"github.com/penstock-io/penstock/stream"
)

// The modes of writing. The mode determines whether a record can replace a row.
const (
	Append = "append" // every record is a new row
	Upsert = "upsert" // a record replaces the row with the same key
)

// Options are the options that all SQL sinks share. A sink's own options embed them.
type Options struct {
	Table      string         `yaml:"table" required:"true" doc:"table; created if missing"`
	Columns    []ColumnOption `yaml:"columns" doc:"[name, ...] or {name: type, ...}; default: those of the table or first batch"`
	Mode       string         `yaml:"mode" enum:"append,upsert" doc:"append: a row for each record; upsert: replaces the row with its key"`
	Key        []string       `yaml:"key" doc:"for upsert: columns of a primary key or unique index"`
	OnNewField string         `yaml:"on_new_field" enum:"json_column,ignore,dead_letter" doc:"handling of fields without a column"`
	JSONColumn string         `yaml:"json_column" doc:"column for new fields, as a JSON object"`
	Ledger     string         `yaml:"ledger" doc:"name of the route's progress in the database; default PIPELINE/ROUTE"`
}

// DefaultOptions returns the default options.
func DefaultOptions() Options { return Options{Mode: Append, JSONColumn: "_extra"} }

// Policy returns the policy of the option on_new_field. If the option is not set, the policy
// depends on the option columns: Ignore if it lists columns, and JSONColumn otherwise.
func (o *Options) Policy() Policy {
	switch {
	case o.OnNewField != "":
		return Policy(o.OnNewField)
	case len(o.Columns) > 0:
		return Ignore
	}
	return JSONColumn
}

// PreferredBatch implements stream.Preferred. The batches are large because a batch is usually a
// transaction of its own, and each transaction costs an fsync. With lines of 84 bytes or more, the
// byte limit is reached first.
func (o *Options) PreferredBatch() stream.BatchLimits {
	return stream.BatchLimits{Bytes: 2 << 20, Records: 25_000}
}

// maxLedgerName bounds the length of a ledger's name.
const maxLedgerName = 200

// Validate checks the options, and sets on_new_field to its default if it is not set.
func (o *Options) Validate(d *Dialect) error {
	o.OnNewField = string(o.Policy())
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	name, err := ParseName(o.Table, d.Schemas)
	switch {
	case err != nil:
		return stream.OptionErrorf("table", "%w", err)
	case d.CheckName(name.Table) != nil:
		return stream.OptionErrorf("table", "%w", d.CheckName(name.Table))
	case name.Schema != "" && d.CheckName(name.Schema) != nil:
		return stream.OptionErrorf("table", "schema %w", d.CheckName(name.Schema))
	case strings.HasPrefix(strings.ToLower(name.Table), LedgerPrefix):
		return stream.OptionErrorf("table", "%q is reserved for the ledger; choose a name that "+
			"does not begin with %s", name.Table, LedgerPrefix)
	case !d.Usable(o.JSONColumn):
		return stream.OptionErrorf("json_column", "%q cannot be the name of a column", o.JSONColumn)
	case len(o.Ledger) > maxLedgerName ||
		strings.ContainsFunc(o.Ledger, func(c rune) bool { return c <= ' ' || c > '~' }):
		return stream.OptionErrorf("ledger", "%q is not 1 to %d visible ASCII characters without "+
			"space", o.Ledger, maxLedgerName)
	}
	for i, c := range o.Columns {
		if err := o.checkColumn(d, i, c); err != nil {
			return stream.OptionErrorf(fmt.Sprintf("columns[%d]", i), "%w", err)
		}
	}
	return o.validateKey(d)
}

func (o *Options) checkColumn(d *Dialect, i int, c ColumnOption) error {
	field, err := fieldname.Parse(c.Name)
	name := field.Flat
	switch {
	case c.Name != "" && err != nil:
		return err
	case d.CheckName(name) != nil:
		return fmt.Errorf("name %q %w", name, d.CheckName(name))
	case !d.Usable(name):
		return fmt.Errorf("%q is reserved by the database", name)
	case o.Policy() == JSONColumn && d.same(name, o.JSONColumn):
		return fmt.Errorf("%q is the JSON column; remove it, or set another name in json_column",
			name)
	case slices.ContainsFunc(o.Columns[:i],
		func(before ColumnOption) bool { return d.same(before.field().Flat, name) }):
		return fmt.Errorf("%q is given twice", name)
	}
	_, err = c.Column()
	return err
}

// Shape implements stream.Shaper. If the schema is not open, Shape returns an error for each listed
// column that cannot get a value from any field.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	if in.Open {
		return in, nil
	}
	var errs []error
	for i, c := range o.Columns {
		key := fmt.Sprintf("columns[%d]", i)
		if at, _, err := c.field().Find(in); err != nil {
			errs = append(errs, &stream.OptionError{Key: key, Err: err})
		} else if at < 0 {
			errs = append(errs, fieldname.Missing(key, c.Name, in))
		}
	}
	return in, errors.Join(errs...)
}

func (o *Options) validateKey(d *Dialect) error {
	switch {
	case o.Mode == Upsert && len(o.Key) == 0:
		return stream.OptionErrorf("key", "is missing: upsert needs the columns that identify a "+
			"row")
	case o.Mode != Upsert && len(o.Key) > 0:
		return stream.OptionErrorf("key", "has no effect with mode: append; write mode: upsert, "+
			"or remove it")
	}
	for i, k := range o.Key {
		listed := slices.ContainsFunc(o.Columns,
			func(c ColumnOption) bool { return c.field().Flat == k })
		switch {
		case k == "" || slices.ContainsFunc(o.Key[:i], func(b string) bool { return d.same(b, k) }):
			return stream.OptionErrorf("key", "%q is empty or given twice", k)
		case !d.Usable(k):
			return stream.OptionErrorf("key", "%q cannot be the name of a column", k)
		case o.Policy() == JSONColumn && d.same(k, o.JSONColumn):
			return stream.OptionErrorf("key", "%q is the JSON column; set another name in "+
				"json_column", k)
		case len(o.Columns) > 0 && !listed:
			return stream.OptionErrorf("key", "%q is not one of the columns", k)
		}
	}
	return nil
}

// LedgerPrefix is the prefix of the names of the ledger's tables. These tables are in the same
// schema as the data.
const LedgerPrefix = "penstock_"

// ColumnOption is a column in the option columns. An item of a list is "name" or "name: type". An
// entry of a mapping is name: type. The column gets the value of the field with the same name. If a
// record has no field a.b, the column a.b gets the member b of the field a, unless the name is in
// double quotes.
type ColumnOption struct {
	Name string `yaml:",key"`
	Type string `yaml:",value" doc:"text (default), integer, number, float, boolean, json, or a type of the database"`
}

// UnmarshalText parses "name" or "name: type".
func (c *ColumnOption) UnmarshalText(text []byte) error {
	c.Name, c.Type = string(text), ""
	if name, typ, ok := strings.Cut(string(text), ": "); ok {
		c.Name, c.Type = name, strings.TrimSpace(typ)
		if c.Type == "" {
			return errors.New("the type is empty; remove the colon, or add a type after it")
		}
	}
	return nil
}

// MarshalText returns the form that UnmarshalText parses.
func (c ColumnOption) MarshalText() ([]byte, error) {
	if c.Type == "" {
		return []byte(c.Name), nil
	}
	return []byte(c.Name + ": " + c.Type), nil
}

func (c ColumnOption) field() fieldname.Name { return fieldname.Lenient(c.Name) }

var typeNames = map[string]Type{
	"": Text, "text": Text, "integer": Integer, "int": Integer, "bigint": Integer, "number": Number,
	"numeric": Number, "decimal": Number,
	"float": Float, "double": Float, "double precision": Float, "boolean": Bool, "bool": Bool,
	"json": JSON,
}

// maxDecl bounds the length of a database type.
const maxDecl = 60

// Column returns the column of the option.
func (c ColumnOption) Column() (Column, error) {
	name := strings.ToLower(c.Type)
	if t, ok := typeNames[name]; ok {
		return Column{Name: c.field().Flat, Type: t, Nested: c.field().Path != nil}, nil
	}
	allowed := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("_ (),[]", r)
	}
	if len(name) > maxDecl || name[0] < 'a' || name[0] > 'z' ||
		strings.ContainsFunc(name, func(r rune) bool { return !allowed(r) }) {
		return Column{}, fmt.Errorf("%q is not a type; write text, integer, number, float, "+
			"boolean, json, or a type of the database", c.Type)
	}
	return Column{Name: c.field().Flat, Type: Other, Decl: name, Nested: c.field().Path != nil}, nil
}

// Listed returns the columns listed in the config.
func (o *Options) Listed(d *Dialect) []Column {
	columns := make([]Column, 0, len(o.Columns))
	for _, c := range o.Columns {
		col, err := c.Column()
		if err != nil {
			continue // Validate has reported it
		}
		if col.Type == Other {
			col.Type = d.TypeOf(col.Decl)
		}
		columns = append(columns, col)
	}
	return columns
}
