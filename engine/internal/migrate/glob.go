package migrate

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
)

// maxFiles is the maximum number of files that may match one glob.
const maxFiles = 1_000_000

// MatchGlob reports whether a path matches a glob. In the glob, ** matches any number of
// directories. * matches any number of characters other than a slash, and ? matches one. {a,b}
// matches a or b. [ab] matches one of the characters a and b, and [!ab] any other one. An invalid
// glob matches nothing.
func MatchGlob(glob, path string) bool {
	re, err := regexp.Compile(globPattern(glob))
	return err == nil && re.MatchString(path)
}

// globPattern returns the regular expression of a glob.
func globPattern(glob string) string {
	var b strings.Builder
	b.WriteString("^")
	depth := 0
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case strings.HasPrefix(glob[i:], "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(glob[i:], "**"):
			b.WriteString(".*")
			i++
		case c == '*':
			b.WriteString("[^/]*")
		case c == '?':
			b.WriteString("[^/]")
		case c == '[' && strings.Contains(glob[i:], "]"):
			end := i + strings.IndexByte(glob[i:], ']')
			class := glob[i+1 : end]
			if rest, ok := strings.CutPrefix(class, "!"); ok {
				class = "^" + rest
			}
			b.WriteString("[" + class + "]")
			i = end
		case c == '{':
			depth++
			b.WriteString("(?:")
		case c == '}' && depth > 0:
			depth--
			b.WriteString(")")
		case c == ',' && depth > 0:
			b.WriteString("|")
		default:
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	return b.String() + "$"
}

// files returns the regular files that match a glob. It omits directories that cannot be read.
func files(glob string) ([]string, error) {
	root := glob
	if i := strings.IndexAny(root, "*?[{"); i >= 0 {
		root = root[:i]
	}
	if root = filepath.Dir(root); root == "" {
		root = "."
	}
	re, err := regexp.Compile(globPattern(glob))
	if err != nil {
		return nil, err
	}
	var out []string
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && e != nil && e.IsDir():
			return fs.SkipDir
		case err != nil:
			return nil
		case len(out) >= maxFiles:
			return errors.New("too many files match " + glob)
		case e.Type().IsRegular() && re.MatchString(path):
			out = append(out, path)
		}
		return nil
	})
	return out, err
}
