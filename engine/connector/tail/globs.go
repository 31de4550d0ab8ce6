//penstock:pure

package tail

import (
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// glob is a pattern relative to a root, split at slashes. The part "**" matches any number of
// folders, but no hidden ones.
type glob []string

// rooted splits a pattern into two parts: the leading folders without wildcards, and the rest. For
// /var/log/*/a.log, these are /var/log and */a.log.
func rooted(pattern string) (root string, g glob) {
	parts := strings.Split(pattern, "/")
	n := 0
	for n < len(parts)-1 && !special(parts[n]) {
		n++
	}
	root = strings.Join(parts[:n], "/")
	switch {
	case root == "" && n > 0:
		root = "/"
	case root == "":
		root = "."
	}
	return root, parts[n:]
}

// special reports whether a part of a pattern has wildcards or escapes.
func special(part string) bool { return strings.ContainsAny(part, `*?[\`) }

// file reports whether the glob matches a file with this name directly in the folder to which the
// glob is relative.
func (g glob) file(name string) bool {
	for len(g) > 1 && g[0] == "**" {
		g = g[1:]
	}
	return len(g) == 1 && one(g[0], name)
}

// into appends to dst the globs that apply inside the folder with the given name, if g matches
// files below it. Examples: inside the folder b, the glob b/*.log becomes *.log, and the glob
// **/*.log stays the same.
func (g glob) into(dst []glob, name string) []glob {
	if len(g) < 2 || hidden(name) && g[0] == "**" {
		return dst
	}
	if g[0] == "**" {
		dst = append(dst, g)
		return g[1:].into(dst, name)
	}
	if one(g[0], name) {
		dst = append(dst, g[1:])
	}
	return dst
}

// one reports whether a part of a pattern matches name. As in shells, a wildcard does not match a
// leading dot.
func one(pattern, name string) bool {
	if hidden(name) && !strings.HasPrefix(pattern, ".") {
		return false
	}
	return follow.Match(pattern, name)
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// matches reports whether the pattern matches the path of a file. Both must be absolute, with
// forward slashes.
func matches(pattern, file string) bool {
	folders := strings.Split(file, "/")
	globs := []glob{strings.Split(pattern, "/")}
	for _, name := range folders[:len(folders)-1] {
		var next []glob
		for _, g := range globs {
			next = g.into(next, name)
		}
		globs = next
	}
	base := folders[len(folders)-1]
	return slices.ContainsFunc(globs, func(g glob) bool { return g.file(base) })
}
