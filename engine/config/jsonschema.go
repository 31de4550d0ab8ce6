package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// JSONSchema returns the JSON Schema (draft 2020-12) of configs with these components. Editors use
// it for completion and checks. It is generated from the tags of the option structs and covers
// names, types and values. It does not cover the rules in Validate methods, nor most rules for
// combinations of options, which [Load] checks.
func JSONSchema(components []stream.Component) ([]byte, error) {
	s := schemas{components}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s.file()); err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return out.Bytes(), nil
}

// object is a JSON object that keeps the order of its members.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	out.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			out.WriteByte(',')
		}
		if err := enc.Encode(m.key); err != nil {
			return nil, err
		}
		out.WriteByte(':')
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// with returns o with an additional member.
func (o object) with(key string, value any) object {
	return append(slices.Clip(o), member{key, value})
}

// within returns o with the minimum and maximum of a number option.
func (o object) within(bounds option) object {
	if bounds.min != "" {
		o = o.with("minimum", json.Number(bounds.min))
	}
	if bounds.max != "" {
		o = o.with("maximum", json.Number(bounds.max))
	}
	return o
}

func ref(name string) object { return object{{"$ref", "#/$defs/" + name}} }

func anyOf(s ...object) object { return object{{"anyOf", s}} }

func ofType(t ...string) object {
	if len(t) == 1 {
		return object{{"type", t[0]}}
	}
	return object{{"type", t}}
}

type schemas struct{ components []stream.Component }

func (s schemas) file() object {
	properties := object{
		{"state", schemaOfState()},
		{"admin", schemaOf(reflect.ValueOf(Admin{}), option{doc: "address of metrics, health and " +
			"status"}).with("default", "off")},
		{"telemetry", schemaOf(reflect.ValueOf(Telemetry{Interval: DefaultTelemetryInterval}),
			option{doc: "pushes metrics and traces to an OpenTelemetry receiver"})},
		{"pipelines", object{
			{"type", "object"}, {"description", "name to pipeline"}, {"minProperties", 1},
			{"propertyNames", object{{"pattern", namesForm.String()}}},
			{"additionalProperties", ref("pipeline")},
		}},
	}
	properties = append(properties, member{processorsKey, object{
		{"type", "object"}, {"description", "lists of processors that routes use by name"},
		{"propertyNames", object{{"pattern", namesForm.String()}}},
		{"additionalProperties", object{
			{"type", "array"}, {"minItems", 1}, {"items", ref("processor")},
		}},
	}})
	tests := schemaOf(reflect.ValueOf([]Test{}), option{doc: "unit tests of processors, for " +
		"`penstock test`"})
	properties = append(properties, member{"tests", tests})
	return object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "The config of penstock"},
		{"type", "object"},
		{"properties", properties},
		{"required", []string{"pipelines"}},
		{"additionalProperties", false},
		{"$defs", s.defs()},
	}
}

func (s schemas) defs() object {
	return object{
		{"variable", object{{"type", "string"}, {"pattern", `\$\{`}}},
		{"duration", object{
			{"type", "string"}, {"description", "a duration such as 200ms, 5s, 1h30m"},
			{"pattern", `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$|\$\{`},
		}},
		{"size", object{
			{"type", []string{"string", "integer"}},
			{"description", "a size such as 4096, 256KiB, 1MB"},
			{"pattern", `^[0-9.]+ *([kKMGT]i?B|B)?$|\$\{`}, {"minimum", 0},
		}},
		{"source", s.component(stream.SourceRole)},
		{"processor", s.component(stream.ProcessorRole)},
		{"sink", s.component(stream.SinkRole)},
		{"route", s.route(object{{otherwiseKey, object{
			{"type", "boolean"}, {"default", false},
			{"description", "take the records that no other route's condition takes"},
		}}}, []string{"sink"})},
		{"pipeline", s.pipeline()},
	}
}

// route returns the schema of a mapping that has the keys of a route, and additional keys, which
// are the argument more. For an element of `routes`, the additional key is `otherwise`. For a
// pipeline, these are `source` and `routes`. The keys in required must be present.
func (s schemas) route(more object, required []string) object {
	d := DefaultRoute(MainRoute, "state")
	d.DeadLetters.Dir = ""
	properties := append(slices.Clip(more), object{
		{"processors", object{
			{"type", "array"}, {"description", "in the order in which they run"},
			{"items", anyOf(ref("processor"), object{
				{"type", "object"}, {"required", []string{useKey}}, {"additionalProperties", false},
				{"properties", object{
					{useKey, textSchema().with("description", "name of a shared list")},
				}},
			})},
		}},
		{"sink", ref("sink")},
		{limitKey, schemaOf(reflect.ValueOf(Limit{}), option{doc: "limits of the sink, " +
			"regardless of windows"})},
		{workerLimitKey, schemaOf(reflect.ValueOf(Limit{}),
			option{doc: "the same for each worker"})},
	}...)
	for _, part := range d.parts() {
		schema := schemaOf(part.value, option{doc: part.doc})
		if part.key == "retry" {
			schema = backoffSchema(schema)
		}
		properties = append(properties, member{part.key, schema})
	}
	return object{
		{"type", "object"}, {"properties", properties}, {"required", required},
		{"additionalProperties", false},
	}
}

func (s schemas) pipeline() object {
	p := s.route(object{
		{"source", ref("source")},
		{"routes", object{
			{"type", "object"},
			{"description", "name to route: each has its own processors, sink and checkpoint"},
			{"minProperties", 1}, {"propertyNames", object{{"pattern", namesForm.String()}}},
			{"additionalProperties", ref("route")},
		}},
	}, []string{"source"})
	return p.with("oneOf",
		[]object{{{"required", []string{"sink"}}}, {{"required", []string{"routes"}}}})
}

// component returns the schema of a component of a role. In a config it is a name, or a name with
// options.
func (s schemas) component(r stream.Role) object {
	var names []string
	var properties object
	for _, c := range s.components {
		if c.Role != r {
			continue
		}
		i := slices.IndexFunc(properties, func(m member) bool { return m.key == c.Name })
		if i >= 0 && c.Options != nil {
			other := schemaOf(reflect.ValueOf(c.Options()).Elem(), option{})
			properties[i].value = anyOf(properties[i].value.(object), other)
			continue
		}
		names = append(names, c.Name)
		if c.Options == nil {
			properties = append(properties,
				member{c.Name, object{{"type", []string{"object", "null"}}, {"maxProperties", 0}}})
			continue
		}
		o := option{}
		options := c.Options()
		if _, ok := options.(stream.Composite); ok {
			properties = append(properties, member{c.Name, object{
				{"type", "array"}, {"minItems", 2},
				{"description", "sinks, the preferred one first"}, {"items", ref(string(r))},
			}})
			continue
		}
		_, o.expression = options.(expression)
		properties = append(properties,
			member{c.Name, schemaOf(reflect.ValueOf(options).Elem(), o)})
	}
	if len(names) == 0 {
		return object{{"not", object{}}}
	}
	return anyOf(object{{"enum", names}}, object{
		{"type", "object"}, {"properties", properties}, {"additionalProperties", false},
		{"minProperties", 1}, {"maxProperties", 1},
	})
}

// textSchema returns a schema of all values that a config may have for a text option. They include
// numbers and booleans: for example, `password: 0123` is a number to YAML.
func textSchema() object { return ofType("string", "number", "boolean") }

// schemaOf returns the schema of an option with the default value v.
func schemaOf(v reflect.Value, o option) object {
	s := shapeOf(v, o)
	if o.doc != "" {
		s = append(object{{"description", o.doc}}, s...)
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Map:
		return s
	case reflect.Slice:
		if v.Len() == 0 {
			return s
		}
	default:
		if v.IsZero() && v.Kind() != reflect.Bool || o.required || o.secret {
			return s
		}
	}
	return s.with("default", json.RawMessage(appendJSON(nil, describe(v, false))))
}

func shapeOf(v reflect.Value, o option) object {
	t := v.Type()
	switch {
	case t == durationType:
		return ref("duration")
	case t == sizeType:
		return ref("size")
	case t == valueType:
		return object{}
	case isPairs(t):
		value := t.Elem().Field(1)
		pairs := object{
			{"type", "object"}, {"minProperties", 1},
			{"additionalProperties", schemaOf(reflect.New(value.Type).Elem(), optionOf("", value))},
		}
		if isTexts(t) {
			return anyOf(object{{"type", "array"}, {"items", textSchema()}}, pairs)
		}
		return pairs
	case reflect.PointerTo(t).Implements(textType) && t.Kind() != reflect.Struct:
		return textSchema()
	case reflect.PointerTo(t).Implements(textType) && isList(t):
		f, _ := listField(t)
		return anyOf(textSchema(), schemaOf(v.FieldByIndex(f.Index), optionOf("", f)))
	case reflect.PointerTo(t).Implements(textType):
		return anyOf(textSchema(), structSchema(v))
	}
	item := o
	item.doc = ""
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(reflect.New(t.Elem()).Elem(), o)
	case reflect.Struct:
		if f, ok := listField(t); ok {
			return anyOf(schemaOf(v.FieldByIndex(f.Index), optionOf("", f)), structSchema(v))
		}
		return structSchema(v)
	case reflect.Slice:
		s := object{{"type", "array"}, {"items", schemaOf(reflect.New(t.Elem()).Elem(), item)}}
		if o.required {
			s = s.with("minItems", 1)
		}
		return s
	case reflect.Map:
		return object{{"type", "object"},
			{"additionalProperties", schemaOf(reflect.New(t.Elem()).Elem(), item)}}
	case reflect.Bool:
		return anyOf(ofType("boolean"), ref("variable"))
	case reflect.Float32, reflect.Float64:
		return anyOf(ofType("number").within(o), ref("variable"))
	case reflect.String:
		if o.enum != nil {
			return anyOf(object{{"enum", o.enum}}, ref("variable"))
		}
		return textSchema()
	}
	if strings.HasPrefix(t.Kind().String(), "uint") {
		o.min = cmp.Or(o.min, "0")
		return anyOf(ofType("integer").within(o), ref("variable"))
	}
	return anyOf(ofType("integer").within(o), ref("variable"))
}

func structSchema(v reflect.Value) object {
	keys, fields := fieldsOf(v.Type())
	properties, required := object{}, []string{}
	for _, key := range keys {
		o := optionOf("", fields[key])
		properties = append(properties, member{key, schemaOf(v.FieldByIndex(fields[key].Index), o)})
		if o.required {
			required = append(required, key)
		}
	}
	s := object{{"properties", properties}, {"additionalProperties", false}}
	if len(required) > 0 {
		return append(ofType("object").with("required", required), s...)
	}
	return append(ofType("object", "null"), s...) // null, because an empty `drop:` is valid
}
