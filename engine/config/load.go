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

// LoadOptions are the surroundings of a config.
type LoadOptions struct {
	// Components are the sources, processors and sinks that the config may name.
	Components []stream.Component

	// Env looks up the variable of ${NAME} and reports whether it is set. Nil means os.LookupEnv.
	Env func(name string) (value string, ok bool)
}

// Load reads the config file at path. It returns all of it or an error, which is an [*Error], or
// [Errors] if several independent things are wrong. It opens the config and the files that
// ${file:...} names, and creates nothing. Relative paths in the config are resolved against its
// directory.
func Load(path string, o LoadOptions) (*Config, error) {
	l := newLoader(path, o)
	text := l.read()
	if len(l.errs) > 0 {
		return nil, report(l)
	}
	return l.load(text)
}

// Parse is Load for a config in memory of at most 1 MiB. name stands for the file in errors;
// relative paths are resolved against its directory, which for a name without a slash is the
// working directory.
func Parse(name string, text []byte, o LoadOptions) (*Config, error) {
	return newLoader(name, o).load(text)
}

func newLoader(path string, o LoadOptions) *loader {
	if o.Env == nil {
		o.Env = os.LookupEnv
	}
	return &loader{
		kind: Kind{"config", "`pipelines:` with one pipeline"}, path: path, dir: filepath.Dir(path), options: o,
		secrets: secretKeys(o.Components), claims: map[string]claim{},
		right: map[any]func(error){},
	}
}

// load reads a config's text. It is what the fuzzer drives.
func (l *loader) load(text []byte) (*Config, error) {
	root := l.parse(text)
	if root == nil {
		return nil, report(l)
	}
	f := l.file(root)
	if len(l.errs) > 0 {
		return nil, report(l)
	}
	return f, nil
}

// secretKeys collects the keys that any component marks as secret.
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
	for _, c := range cs {
		if c.Options != nil {
			visit(reflect.TypeOf(c.Options()), 0)
		}
	}
	return out
}

var (
	fileKeys  = []string{"state", "admin", "pipelines", "tests"}
	namesForm = regexp.MustCompile(`^[a-z0-9_-]{1,64}$`)
)

func (l *loader) file(root *yaml.Node) *Config {
	f := &Config{Path: l.path, State: l.resolve("state"), Admin: Admin{Address: AdminOff}}
	if root.Kind != yaml.MappingNode {
		l.fail(root, "a config is a mapping with `pipelines:`, and this is %s", article(kindName(root)))
		return f
	}
	keys, meant := l.keys(root, "a config", fileKeys)
	if n := keys["state"]; n != nil {
		l.decode(n, reflect.ValueOf(&f.State).Elem(), option{name: "state", path: true})
		if f.State == "" {
			l.fail(n, "state is empty; name a folder, or leave the key out for ./state beside this file")
		}
	}
	if n := keys["admin"]; n != nil {
		l.admin(n, f)
	}
	n := keys["pipelines"]
	switch {
	case n == nil && meant["pipelines"]:
	case n == nil:
		l.fail(root, "`pipelines:` is missing: a config has at least one pipeline, with a source and a sink")
	case n.Kind != yaml.MappingNode || len(n.Content) == 0:
		l.fail(n, "pipelines wants a mapping of names to pipelines, and this is %s", emptyOr(n))
	default:
		l.pipelines(n, f)
	}
	if n := keys["tests"]; n != nil {
		loadTests(l, n, f)
	}
	return f
}

func (l *loader) pipelines(n *yaml.Node, f *Config) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if p, ok := l.pipeline(n.Content[i], n.Content[i+1], f.State); ok {
			f.Pipelines = append(f.Pipelines, p)
		}
	}
}

// keys gives the values of a mapping by key, after refusing unknown ones; meant are the known keys
// that those probably stand for, which nobody needs to be told are missing.
func (l *loader) keys(n *yaml.Node, of string, known []string) (out map[string]*yaml.Node, meant map[string]bool) {
	out, meant = map[string]*yaml.Node{}, map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if !slices.Contains(known, key.Value) {
			l.fail(key, "%s has no key %q", of, key.Value).Hint = didYouMean(key.Value, known)
			meant[Nearest(key.Value, known)] = true
			continue
		}
		out[key.Value] = n.Content[i+1]
	}
	return out, meant
}

// emptyOr says what a node is where a filled mapping is wanted.
func emptyOr(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode {
		return "empty"
	}
	return article(kindName(n))
}
