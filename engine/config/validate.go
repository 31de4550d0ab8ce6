package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// Validate checks a config that was built or changed in Go. It applies the rules of [Load], except
// those for resources that only one component may use. Of components that were not read from a
// file, it checks the options only with their Validate methods. A config that Load has returned is
// already valid. The error is an [*Error], or [Errors] if there are several independent mistakes.
func (c *Config) Validate() error {
	v := validation{places: map[string]bool{}}
	if c.State == "" {
		v.fail(Place{File: c.Path}, "state is empty; name a directory")
	}
	for _, section := range []struct {
		key string
		err error
	}{
		{"state.nats", c.Cluster.Check()}, {"admin", c.Admin.Check()},
		{"telemetry", c.Telemetry.Check()},
	} {
		if section.err != nil {
			v.fail(Place{File: c.Path}, "%s: %v", section.key, section.err)
		}
	}
	if len(c.Pipelines) == 0 {
		v.fail(Place{File: c.Path}, "there is no pipeline; a config has at least one, with a "+
			"source and a sink")
	}
	for i := range c.Pipelines {
		v.pipeline(&c.Pipelines[i], c.State)
	}
	for i := range c.Tests {
		if t := &c.Tests[i]; len(v.errs) == 0 {
			if err := t.check(c); err != nil {
				v.fail(t.Where, "%v", err)
			}
		}
	}
	return v.errs.joined()
}

// validation checks a config and collects its problems.
type validation struct {
	errs   Errors
	places map[string]bool // "pipeline" or "pipeline/route" that occurred
}

func (v *validation) fail(at Place, format string, args ...any) {
	v.errs = append(v.errs, &Error{Place: at, Message: maskURLs(fmt.Sprintf(format, args...))})
}

func (v *validation) name(at Place, role, name, path string) {
	if !namesForm.MatchString(name) {
		v.fail(at, "%s name %q: use 1 to 64 of a-z, 0-9, - and _, because files and metrics get "+
			"this name", role, name)
	}
	v.places[path] = true
}

func (v *validation) pipeline(p *Pipeline, state string) {
	if v.places[p.Name] {
		v.fail(p.Where, "two pipelines are named %q; rename one", p.Name)
		return
	}
	v.name(p.Where, "pipeline", p.Name, p.Name)
	what := fmt.Sprintf("pipeline %q", p.Name)
	v.use(p.Where, p.Source, stream.SourceRole, what)
	if err := readsState(p.Source, state); err != nil {
		v.fail(p.Where, "%s: %s: %v", what, p.Source.Component.Name, err)
	}
	if len(p.Routes) == 0 {
		v.fail(p.Where, "%s has no route; a pipeline has at least one, with a sink", what)
	}
	for i := range p.Routes {
		v.route(p, &p.Routes[i], fmt.Sprintf("%s, route %q", what, p.Routes[i].Name))
	}
}

func (v *validation) route(p *Pipeline, r *Route, what string) {
	path := p.Name + "/" + r.Name
	if v.places[path] {
		v.fail(r.Where, "two routes are named %q; rename one", path)
		return
	}
	v.name(r.Where, "route", r.Name, path)
	before := len(v.errs)
	v.use(r.Where, r.Sink, stream.SinkRole, what)
	for _, u := range r.Processors {
		v.use(r.Where, u, stream.ProcessorRole, what)
	}
	if len(v.errs) == before {
		v.shape(p, r, what)
	}
	for _, u := range r.Sink.ends() {
		if err := feedback(p.Source, u); err != nil {
			v.fail(r.Where, "%s: %s: %v", what, u.Component.Name, err)
		}
	}
	for _, part := range r.parts() {
		v.enums(r.Where, what, part.key, part.value)
	}
	unset := DefaultRoute(r.Name, "")
	check{
		route: r,
		given: func(part, key string) bool {
			return !sameValue(r.option(part, key), unset.option(part, key))
		},
		wrong: func(_, _, format string, args ...any) {
			v.fail(r.Where, "%s: "+format, append([]any{what}, args...)...)
		},
	}.all()
}

// use checks a component. It also checks its options, unless Load has done so.
func (v *validation) use(at Place, u Use, role stream.Role, what string) {
	c := u.Component
	switch {
	case c.New == nil:
		v.fail(at, "%s has no %s", what, role)
	case c.Role != role:
		v.fail(at, "%s: %s is a %s, not a %s", what, c.Name, c.Role, role)
	case c.Options != nil && u.Options == nil:
		v.fail(at, "%s: %s %s has no options; start with those that its Component.Options "+
			"returns", what,
			role, c.Name)
	case u.Where == Place{}:
		validator, ok := u.Options.(interface{ Validate() error })
		if !ok {
			return
		}
		if err := validator.Validate(); err != nil {
			for _, err := range flatten(err) {
				v.fail(at, "%s: %s: %v", what, c.Name, err)
			}
		}
	}
}

// shape passes the schema of the records from one component to the next. It does nothing if Load
// has already done so.
func (v *validation) shape(p *Pipeline, r *Route, what string) {
	uses := slices.Concat([]Use{p.Source}, r.Processors, r.Sink.ends())
	if !slices.ContainsFunc(uses, func(u Use) bool { return u.Where == Place{} }) {
		return
	}
	if u, err := passShape(uses); err != nil {
		v.fail(r.Where, "%s: %s: %v", what, u.Component.Name, errors.Join(flatten(err)...))
	}
}

// passShape passes the schema of the records from one component to the next. It returns the first
// component that does not accept the schema, and its error.
func passShape(uses []Use) (Use, error) {
	schema := stream.UnparsedSchema()
	for _, u := range uses {
		if s, ok := u.Options.(stream.Shaper); ok {
			out, err := s.Shape(schema.Clone())
			if err != nil {
				return u, err
			}
			schema = out
		}
	}
	return Use{}, nil
}

// enums checks the options that must be one of several words.
func (v *validation) enums(at Place, what, part string, value reflect.Value) {
	if value.Kind() != reflect.Struct {
		return
	}
	for _, err := range flatten(stream.CheckEnums(value.Addr().Interface(), "order")) {
		if wrong, ok := errors.AsType[*stream.OptionError](err); ok {
			v.fail(at, "%s: %s.%s %v", what, part, wrong.Key, wrong.Err)
		}
	}
	for f, field := range value.Fields() {
		o := optionOf(part, f)
		if f.Tag.Get("names") != "" && !slices.Contains(o.enum, field.String()) {
			v.fail(at, "%s: %s is %q, want %s", what, o.name, field.String(), choice(o.enum))
		}
	}
}

// routePart is a key of a route, with its value.
type routePart struct {
	key, doc string
	value    reflect.Value // addressable
}

// parts returns the keys of a route and their values, in the order of a plan, except for the
// processors, the sink, the limits and `otherwise`.
func (r *Route) parts() []routePart {
	return []routePart{
		{"batch", "", reflect.ValueOf(&r.Batch).Elem()},
		{"flow", "", reflect.ValueOf(&r.Flow).Elem()},
		{"retry", "", reflect.ValueOf(&r.Retry).Elem()},
		{"dead_letters", "", reflect.ValueOf(&r.DeadLetters).Elem()},
		{"guard", "", reflect.ValueOf(&r.Guard).Elem()},
		{"checkpoint", "", reflect.ValueOf(&r.Checkpoint).Elem()},
		{"memory", "maximum bytes of all batches of the route; each counts 32 KiB more than its data",
			reflect.ValueOf(&r.Memory).Elem()},
		{"drain", "time that a stop waits for in-flight batches", reflect.ValueOf(&r.Drain).Elem()},
	}
}

// option returns the value of a key in a part of the route. key is "" if the part has no keys.
func (r *Route) option(part, key string) reflect.Value {
	parts := r.parts()
	value := parts[slices.IndexFunc(parts, func(p routePart) bool { return p.key == part })].value
	if key == "" {
		return value
	}
	_, fields := fieldsOf(value.Type())
	return value.FieldByIndex(fields[key].Index)
}
