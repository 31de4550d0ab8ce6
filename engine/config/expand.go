package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// maxIncluded is the maximum size of a file that is included with ${file:...}. Usually the file
// contains only a token.
const maxIncluded = 64 << 10

// expand replaces ${VAR}, ${VAR:-default} and ${file:/path} in a value. $${ stands for a literal
// ${, and any other $ is literal. expand runs after the YAML was parsed, so the inserted text is
// never parsed as YAML. fromFile reports whether a part of the text comes from a file. Such a text
// is not shown in messages.
func (l *loader) expand(n *yaml.Node) (text string, fromFile, ok bool) {
	var b strings.Builder
	rest := n.Value
	for {
		i := strings.Index(rest, "${")
		if i < 0 {
			b.WriteString(rest)
			return b.String(), fromFile, true
		}
		if i > 0 && rest[i-1] == '$' {
			b.WriteString(rest[:i-1] + "${")
			rest = rest[i+2:]
			continue
		}
		b.WriteString(rest[:i])
		inner, after, closed := strings.Cut(rest[i+2:], "}")
		if !closed {
			l.fail(n, "`${` is not closed by `}`; write $${ for a literal ${")
			return "", false, false
		}
		value, file, err := l.variable(inner)
		if err != nil {
			l.fail(n, "`${%s}`: %v", inner, err)
			return "", false, false
		}
		b.WriteString(value)
		fromFile = fromFile || file
		rest = after
	}
}

// variable returns the value for inner, the text between ${ and }. For the name of a file, the
// value is the contents of this file, and the second result is true.
func (l *loader) variable(inner string) (value string, file bool, err error) {
	if path, ok := strings.CutPrefix(inner, "file:"); ok {
		value, err = l.included(path)
		return value, true, err
	}
	name, fallback, hasFallback := strings.Cut(inner, ":-")
	if !isVariable(name) {
		return "", false,
			fmt.Errorf("not a variable; the forms are ${NAME}, ${NAME:-default}, ${file:PATH}, " +
				"and $${ for a literal ${")
	}
	value, set := l.options.Env(name)
	switch {
	case strings.Contains(fallback, "${"):
		return "", false, fmt.Errorf("a default cannot contain another variable")
	case hasFallback && value == "":
		return fallback, false, nil
	case !set:
		return "", false,
			fmt.Errorf("the environment has no %s; set it, or write ${%s:-default}", name, name)
	}
	return value, false, nil
}

// included returns the single value in a file, without the line end.
func (l *loader) included(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("the path is missing")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.dir, path)
	}
	info, err := os.Stat(path) // before opening it, because opening a FIFO would wait for a writer
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, cause(err))
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("read %s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, cause(err))
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxIncluded+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, cause(err))
	}
	if len(text) > maxIncluded {
		return "", fmt.Errorf("%s is larger than %v; it should hold one value", path,
			stream.Size(maxIncluded))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
