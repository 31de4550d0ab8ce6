package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// LoadOptions has the inputs of Load besides the config itself.
type LoadOptions struct {
	// Components are the sources, processors and sinks that the config may name.
	Components []stream.Component

	// Env looks up the variable NAME for ${NAME}: it returns the value, and reports whether the
	// variable is set. Nil means os.LookupEnv.
	Env func(name string) (value string, ok bool)

	// Source is the source of all pipelines, as YAML, such as "stdin: {}". With it, the pipelines
	// in the config must have no source. If it is empty, each pipeline in the config has its own
	// source.
	Source string
}

// Load reads the config at path, which is a file or a directory of files (see [Files]). Relative
// paths in a file are resolved against the directory of that file. The default of `state` is
// resolved against the directory of the config. Load also checks the options of the components.
// This check may read files that the options name, such as certificates. Load creates no files. The
// error is an [*Error], or [Errors] if there are several independent mistakes.
func Load(path string, o LoadOptions) (*Config, error) {
	files, err := Files(path)
	if err != nil {
		l := newLoader(path, o)
		l.failAt(0, 0, "cannot read the %s: %v", l.kind.Noun, cause(err))
		return nil, l.report()
	}
	if len(files) == 0 {
		l := newLoader(path, o)
		l.failAt(0, 0, "is a directory without *.yaml files, and its %s has none either", confDir)
		return nil, l.report()
	}
	s := newSet(path)
	for _, file := range files {
		l := newLoader(file, o)
		text := l.read()
		if len(l.errs) == 0 {
			l.text = text
		}
		s.add(l)
	}
	return s.load()
}

// Parse is like Load for a config in memory of at most 1 MiB. In errors, name is the path of the
// config. Relative paths are resolved against the directory of name, which is the working directory
// if name contains no slash.
func Parse(name string, text []byte, o LoadOptions) (*Config, error) {
	return newLoader(name, o).load(text)
}

func newLoader(path string, o LoadOptions) *loader {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	return &loader{
		document: document{
			kind: Kind{"config", "`pipelines:` with one pipeline"}, path: path,
			secrets: secretKeys(o.Components), options: optionKeys(o.Components),
		},
		dir: filepath.Dir(path), options: o, set: newSet(path),
	}
}

// loader decodes one document. Its methods add mistakes to errs and continue where possible.
type loader struct {
	document
	dir     string // directory for relative paths
	options LoadOptions
	source  Use // source of the current pipeline
	set     *set
	root    *yaml.Node            // nil if it could not be parsed
	top     map[string]*yaml.Node // top-level values by key
	meant   map[string]bool       // known keys that were probably misspelled as unknown ones
}

// claim is the component or option that owns a resource, which no other may use.
type claim struct {
	what  string
	where Place
}

// load reads the text of a config. The fuzz test calls it directly.
func (l *loader) load(text []byte) (*Config, error) {
	l.text = text
	s := newSet(l.path)
	s.add(l)
	return s.load()
}

// optionKeys returns the keys of the options of each component, by the name of the component.
func optionKeys(cs []stream.Component) map[string][]string {
	out := map[string][]string{}
	for _, c := range cs {
		if c.Options == nil {
			continue
		}
		t := reflect.TypeOf(c.Options())
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct {
			keys, _ := fieldsOf(t)
			out[c.Name] = append(out[c.Name], keys...)
		}
	}
	return out
}

// secretKeys returns the keys that a component or a top-level key marks as secret.
func secretKeys(cs []stream.Component) map[string]bool {
	out := map[string]bool{}
	var visit func(t reflect.Type, depth int)
	visit = func(t reflect.Type, depth int) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || depth > 8 {
			return
		}
		_, fields := fieldsOf(t)
		for key, f := range fields {
			if f.Tag.Get("secret") == "true" {
				out[key] = true
			}
			visit(f.Type, depth+1)
		}
	}
	visit(reflect.TypeFor[Admin](), 0)
	visit(reflect.TypeFor[Telemetry](), 0)
	visit(reflect.TypeFor[Cluster](), 0)
	for _, c := range cs {
		if c.Options != nil {
			visit(reflect.TypeOf(c.Options()), 0)
		}
	}
	return out
}

var (
	fileKeys  = []string{"state", "admin", "telemetry", processorsKey, "pipelines", "tests"}
	namesForm = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
)

func (l *loader) pipelines(n *yaml.Node, f *Config) {
	for key, value := range entries(n) {
		if !claimFirst(l, "pipeline", key) {
			continue
		}
		if p, ok := l.pipeline(key, value, f.State); ok {
			f.Pipelines = append(f.Pipelines, p)
		}
	}
}

// keys returns the values of a mapping by key. It records an error for each unknown key. If a known
// key is similar to the unknown one, meant contains the known key. It was probably misspelled, so
// the caller must not also report it as missing.
func (l *loader) keys(n *yaml.Node, of string,
	known []string) (out map[string]*yaml.Node, meant map[string]bool) {
	out, meant = map[string]*yaml.Node{}, map[string]bool{}
	for key, value := range entries(n) {
		if !slices.Contains(known, key.Value) {
			if secretName.MatchString(key.Value) {
				l.hideUnknown(key.Value)
			}
			e := l.fail(key, "%s has no key %q", of, key.Value)
			e.Hint = unknownKey(key.Value, known)
			meant[Nearest(key.Value, known)] = true
			continue
		}
		out[key.Value] = value
	}
	return out, meant
}

// emptyOr describes a node for an error message that asks for a non-empty mapping or list.
func emptyOr(n *yaml.Node, want yaml.Kind) string {
	if n.Kind == want {
		return "empty"
	}
	return article(kindName(n))
}
