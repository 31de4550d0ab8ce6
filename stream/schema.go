package stream

import "slices"

// Schema describes the fields that records have at one point of a route, as far as this is known
// before anything is read.
type Schema struct {
	Fields []SchemaField // in the order of the records' fields
	// Open means that records may have other fields than those in Fields, and may lack some of
	// them, as in JSON.
	Open bool
	// OnError is the option on_error of the last parser: dead_letter, pass or drop. Without a
	// parser, it is dead_letter. The later processors set, rename and where apply it to records
	// that they cannot process, unless where has an option on_error of its own.
	OnError string
}

// SchemaField is a field of records. Any value may also be null.
type SchemaField struct {
	Name string
	Type FieldType
}

// FieldType is the known type of a field's value.
type FieldType string

// The types of fields.
const (
	AnyType     FieldType = ""        // unknown
	TextType    FieldType = "text"    //
	IntegerType FieldType = "integer" // 64-bit, signed
	NumberType  FieldType = "number"  // any size and precision, as in JSON
	BoolType    FieldType = "bool"    //
	JSONType    FieldType = "json"    // an array or object
)

// UnparsedSchema returns the schema of records from a source: one field, message.
func UnparsedSchema() Schema {
	return Schema{Fields: []SchemaField{{MessageName, TextType}}, OnError: "dead_letter"}
}

// Find returns the index of a field in Fields, or -1.
func (s Schema) Find(name string) int {
	return slices.IndexFunc(s.Fields, func(f SchemaField) bool { return f.Name == name })
}

// Names returns the names of the fields, in order.
func (s Schema) Names() []string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return names
}

// Clone returns a copy with its own Fields.
func (s Schema) Clone() Schema {
	s.Fields = slices.Clone(s.Fields)
	return s
}

// Shaper is an optional interface of the options of a source, processor or sink
// ([Component.Options]). It passes a schema along a route while a config is read, so that an
// unknown field is found before the route runs.
//
// Shape is called once per route, after Validate has succeeded. in is the schema of the incoming
// records, or [UnparsedSchema] for a source. Shape stores the parts of it that New needs, and
// returns the schema of the outgoing records. For a sink it returns in. Its errors are shown like
// those of Validate. If the options do not come from a config, Shape is not called, and the schema
// is unknown.
type Shaper interface {
	Shape(in Schema) (out Schema, err error)
}

// EnvironmentUser is an optional interface of the options that [Component.Options] returns.
// FromEnvironment describes the settings that come from the environment instead of the config: one
// short line for each, without secrets, such as "http://es:9200/ through proxy http://proxy:3128".
// The commands validate and status show these lines.
type EnvironmentUser interface {
	FromEnvironment() []string
}

// Noticer is an optional interface of the options that [Component.Options] returns. Notices returns
// remarks on options that are valid, such as an [OptionError] for a key that has a new name. It is
// called after Validate. The command validate shows them.
type Noticer interface {
	Notices() []error
}

// ExclusiveUser is an optional interface of the options that [Component.Options] returns. Its
// method returns the names of resources that only one component of a config can use, such as
// "standard input" or "tcp port 514". The engine refuses a config in which two components use the
// same resource.
type ExclusiveUser interface {
	Exclusive() []string
}

// FileReader is an optional interface of the options of a source. ReadsFile reports whether the
// source reads the file at path. The engine refuses a pipeline with a source that reads the output
// file of one of its sinks, because the source would read each delivered record again, without end.
type FileReader interface {
	ReadsFile(path string) bool
}

// FileWriter is an optional interface of the options of a sink. WritesFile returns the path of its
// output file.
type FileWriter interface {
	WritesFile() string
}

// StandardOutput is the resource of a component that writes to the process's standard output. The
// command line then prints its summary on standard error.
const StandardOutput = "standard output"
