package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"
)

const (
	// confDir is the subdirectory of a config directory with further files of the config.
	confDir = "conf.d"

	// maxFiles is the maximum number of files of a config.
	maxFiles = 1000
)

// Files returns the files of the config at path. If path is a directory, these are the files *.yaml
// and *.yml in it, followed by those in its subdirectory conf.d. Each of the two groups is sorted
// by name. Hidden files are omitted. If path is a file, it is the only one. All files together form
// one config. So two files must not both have the key `state`, `admin` or `telemetry`, or define
// pipelines or lists of processors of the same name.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	for _, dir := range []string{path, filepath.Join(path, confDir)} {
		entries, err := os.ReadDir(dir) // sorted
		if err != nil && (dir == path || !errors.Is(err, os.ErrNotExist)) {
			return nil, err
		}
		for _, e := range entries {
			name := e.Name()
			extension := filepath.Ext(name)
			if e.IsDir() || name[0] == '.' || extension != ".yaml" && extension != ".yml" {
				continue
			}
			files = append(files, filepath.Join(dir, name))
		}
	}
	if len(files) > maxFiles {
		return nil, fmt.Errorf("it has %d files; a config has at most %d", len(files), maxFiles)
	}
	return files, nil
}

// set is a config of one or more files. A file may use the shared processor lists of the others.
type set struct {
	f      *Config
	files  []*loader
	claims map[string]claim
	firsts map[string]Place // places of parts that may occur in one file only
	lists  map[string]*sharedList

	// right maps the Options of a component to a function that records an error at their position
	// in the file. It is used for errors that are found after the options were decoded.
	right map[any]func(error)
}

func newSet(path string) *set {
	return &set{
		f:      &Config{Path: path, Admin: Admin{Address: AdminOff}},
		claims: map[string]claim{}, right: map[any]func(error){}, firsts: map[string]Place{},
		lists: map[string]*sharedList{},
	}
}

func (s *set) add(l *loader) {
	l.set = s
	s.files = append(s.files, l)
}

// load reads all files.
func (s *set) load() (*Config, error) {
	for _, l := range s.files {
		if len(l.errs) == 0 { // otherwise the file could not be read
			l.root = l.parse(l.text)
		}
	}
	if s.failed() {
		return nil, s.report()
	}
	for _, l := range s.files {
		readKeys(l)
	}
	s.f.State = s.defaultState()
	for _, read := range []func(*loader){readGlobals, readPipelines, readTests} {
		for _, l := range s.files {
			read(l)
		}
	}
	for _, l := range s.files {
		checkUnused(l)
	}
	if s.failed() {
		return nil, s.report()
	}
	for _, l := range s.files {
		s.f.Notices = append(s.f.Notices, l.notices.sorted()...)
	}
	return s.f, nil
}

// defaultState returns the directory "state" beside the config file or, if the config is a
// directory, in that directory.
func (s *set) defaultState() string {
	if s.files[0].path == s.f.Path {
		return s.files[0].resolve("state")
	}
	return filepath.Join(s.f.Path, "state")
}

func (s *set) failed() bool {
	return slices.ContainsFunc(s.files, func(l *loader) bool { return len(l.errs) > 0 })
}

// report returns the mistakes of all files as an error, file by file.
func (s *set) report() error {
	var all Errors
	for _, l := range s.files {
		switch err := l.report().(type) {
		case *Error:
			all = append(all, err)
		case Errors:
			all = append(all, err...)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// claimFirst notes that key defines a name of the given kind, such as a pipeline. An empty kind
// means a top-level key. If another file already has the name or key, claimFirst records an error
// and returns false.
func claimFirst(l *loader, kind string, key *yaml.Node) bool {
	id := kind + " " + key.Value
	if at, ok := l.set.firsts[id]; ok {
		what := fmt.Sprintf("%s %q is", kind, key.Value)
		if kind == "" {
			what = key.Value + " is"
		}
		l.fail(key, "%s given twice; the first is at %v", what, at)
		return false
	}
	l.set.firsts[id] = l.place(key)
	return true
}

// readKeys sets l.top, the values of the file by key.
func readKeys(l *loader) {
	if l.root.Kind != yaml.MappingNode {
		kind := article(kindName(l.root))
		l.fail(l.root, "a config is a mapping with `pipelines:`, but this is %s", kind)
		return
	}
	l.top, l.meant = l.keys(l.root, "a config", fileKeys)
}

// keyNode returns the node of the top-level key with the given name.
func keyNode(l *loader, name string) *yaml.Node {
	for key := range entries(l.root) {
		if key.Value == name {
			return key
		}
	}
	return l.root
}

// readGlobals reads the parts of the file that the pipelines of all files use.
func readGlobals(l *loader) {
	f := l.set.f
	if n := l.top["state"]; n != nil && claimFirst(l, "", keyNode(l, "state")) {
		readState(l, n, f)
	}
	readSection(l, "admin", &f.Admin, Admin{})
	readSection(l, "telemetry", &f.Telemetry, Telemetry{Interval: DefaultTelemetryInterval})
	if n := l.top[processorsKey]; n != nil {
		readLists(l, n)
	}
}

// readSection decodes and checks the value of a top-level key, if the file has this key. defaults
// has the values of options that the section does not set.
func readSection(l *loader, key string, to interface{ Check() error }, defaults any) {
	n := l.top[key]
	if n == nil || !claimFirst(l, "", keyNode(l, key)) {
		return
	}
	section := reflect.ValueOf(to).Elem()
	section.Set(reflect.ValueOf(defaults))
	if !l.decode(n, section, option{name: key}) {
		return
	}
	if err := to.Check(); err != nil {
		l.fail(n, "%s: %v", key, err)
	}
}

// readPipelines reads the pipelines of the file. At least one file of the config must have
// pipelines.
func readPipelines(l *loader) {
	n := l.top["pipelines"]
	switch {
	case n != nil && (n.Kind != yaml.MappingNode || len(n.Content) == 0):
		l.fail(n, "pipelines wants a mapping of names to pipelines, but this is %s",
			emptyOr(n, yaml.MappingNode))
	case n != nil:
		l.pipelines(n, l.set.f)
	case l == l.set.files[0] && !slices.ContainsFunc(l.set.files, mayHavePipelines):
		l.fail(l.root, "`pipelines:` is missing: %s",
			"a config has at least one pipeline, with a source and a sink")
	}
}

// mayHavePipelines reports whether the file has the key `pipelines`, or a mistake that hides it: a
// misspelling such as `pipeline`, or a file that is no mapping.
func mayHavePipelines(l *loader) bool {
	return l.top["pipelines"] != nil || l.meant["pipelines"] || l.root.Kind != yaml.MappingNode
}

func readTests(l *loader) {
	if n := l.top["tests"]; n != nil {
		loadTests(l, n, l.set.f)
	}
}

// inLine returns a text for a position, such as "in line 3". If the position is in another file
// than that of l, the text also names the file.
func inLine(l *loader, at Place) string {
	if at.File == l.path {
		return fmt.Sprintf("in line %d", at.Line)
	}
	return "at " + at.String()
}
