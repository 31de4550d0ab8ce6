package stream

import "slices"

// Schema is what is known, before anything is read, of the fields that records have at one place of
// a route.
type Schema struct {
	Fields []SchemaField // in the order in which records have them
	// Open says that records may have other fields too, and those of Fields may lack, as in JSON.
	Open bool
	// OnError says what shall become of a record that a processor behind the last parser cannot work
	// on: dead_letter, pass or drop.
	OnError string
}

// SchemaField is one field that records have. Any value may also be null.
type SchemaField struct {
	Name string
	Type FieldType
}

// FieldType is what a field's value is known to be.
type FieldType string

// The types of fields.
const (
	AnyType     FieldType = ""        // not known
	TextType    FieldType = "text"    //
	IntegerType FieldType = "integer" // of 64 bits, with sign
	NumberType  FieldType = "number"  // a Number of any size and precision, as JSON has
	BoolType    FieldType = "bool"    //
	JSONType    FieldType = "json"    // an array or object
)

// UnparsedSchema is that of records as a source reads them: one field, message.
func UnparsedSchema() Schema {
	return Schema{Fields: []SchemaField{{MessageName, TextType}}, OnError: "dead_letter"}
}

// Find returns the index of a field in Fields, or -1.
func (s Schema) Find(name string) int {
	return slices.IndexFunc(s.Fields, func(f SchemaField) bool { return f.Name == name })
}

// Names gives the names of the fields, in order.
func (s Schema) Names() []string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return names
}

// Clone returns a copy whose Fields are its own.
func (s Schema) Clone() Schema {
	s.Fields = slices.Clone(s.Fields)
	return s
}

// Shaper is an optional part of what [Component.Options] of a source, processor or sink returns.
// Shape is called when a config is read and Validate found nothing wrong, once a route, with the
// schema of the records that come in ([UnparsedSchema], for a source); it keeps what New needs of
// it, and returns that of the records that go out (in, for a sink). Its errors are shown like those
// of Validate. A component that is used without a config is not asked: it then knows nothing of the
// records.
type Shaper interface {
	Shape(in Schema) (out Schema, err error)
}

// EnvironmentUser is an optional part of what [Component.Options] returns. FromEnvironment reports
// settings that the config leaves to the environment, one short line each without secrets, such as
// "http://es:9200/ through proxy http://proxy:3128". The commands validate and status show them.
type EnvironmentUser interface {
	FromEnvironment() []string
}

// ExclusiveUser is an optional part of the options that [Component.Options] returns. Exclusive
// names resources that only one component of a config can have, such as "standard input" or "tcp
// port 514"; a config that gives one to two components is refused.
type ExclusiveUser interface {
	Exclusive() []string
}

// StandardOutput is the resource of a component that writes to the process's standard output. The
// command line then prints its summary on standard error.
const StandardOutput = "standard output"
