//penstock:pure

package parse

import (
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// needs returns a literal that every match of a regular expression contains, or "" if it finds
// none. A text without the literal cannot match, and a search for the literal is much faster than a
// failed match.
func needs(pattern string) string {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return ""
	}
	best, run := "", ""
	var visit func(re *syntax.Regexp)
	end := func() {
		if len(run) > len(best) {
			best = run
		}
		run = ""
	}
	visit = func(re *syntax.Regexp) {
		switch re.Op {
		case syntax.OpLiteral:
			// U+FFFD in a pattern also matches invalid bytes
			if re.Flags&syntax.FoldCase != 0 || slices.Contains(re.Rune, utf8.RuneError) {
				end()
				return
			}
			run += string(re.Rune)
		case syntax.OpConcat, syntax.OpCapture:
			for _, sub := range re.Sub {
				visit(sub)
			}
		case syntax.OpPlus:
			end()
			visit(re.Sub[0])
			end()
		case syntax.OpRepeat:
			end()
			if re.Min > 0 {
				visit(re.Sub[0])
				end()
			}
		case syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
			syntax.OpWordBoundary, syntax.OpNoWordBoundary,
			syntax.OpEmptyMatch: // these match no characters
		default:
			end()
		}
	}
	visit(re)
	end()
	return best
}
