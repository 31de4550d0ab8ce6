//penstock:pure

package config

import (
	"fmt"
	"slices"
	"strings"
)

// Nearest returns the name that is most similar to word. At most a third of the letters may differ,
// or one letter of a short word. It returns "" if no name is similar enough.
func Nearest(word string, names []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, name := range names {
		if strings.EqualFold(plainName(word), plainName(name)) {
			return name
		}
		if d := distance(strings.ToLower(word), name); d < least {
			best, least = name, d
		}
	}
	return best
}

func plainName(s string) string { return strings.NewReplacer("_", "", "-", "", " ", "").Replace(s) }

// distance returns the number of edits that turn a into b: insertions, deletions, replacements, and
// swaps of adjacent bytes (optimal string alignment, Damerau 1964).
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return max(len(a), len(b)) // treated as completely different, because no name is that long
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// didYouMean returns the hint for an unknown name. If a name is similar, the hint is the nearest
// name. Otherwise it is a list of all names, or "" if there are more than 30.
func didYouMean(word string, names []string) string {
	if n := Nearest(word, names); n != "" {
		return fmt.Sprintf("did you mean %q?", n)
	}
	const most = 30 // a longer list would not help
	if len(names) == 0 || len(names) > most {
		return ""
	}
	sorted := slices.Sorted(slices.Values(names))
	return "there is: " + strings.Join(sorted, ", ")
}

// unknownKey returns the hint for an unknown key. If it is a key of a pipeline that stands in the
// wrong place, the hint says so.
func unknownKey(key string, known []string) string {
	hints := []string{misplaced(key, known), didYouMean(key, known)}
	return strings.Join(slices.DeleteFunc(hints, func(s string) bool { return s == "" }), "; ")
}

// misplaced returns a hint for a key of a pipeline that stands elsewhere. It returns "" for any
// other key, and for a key that resembles one of the known keys.
func misplaced(key string, known []string) string {
	if !slices.Contains(pipelineKeys, key) || Nearest(key, known) != "" {
		return ""
	}
	if slices.Contains(routeKeys, key) {
		return key + " is a key of a pipeline or route; write it beside sink:"
	}
	return key + " is a key of a pipeline; write it below pipelines: NAME:"
}

// list joins names with commas and an "and".
func list(names []string) string { return joinWith(names, "and") }

// choice joins names with commas and an "or".
func choice(names []string) string { return joinWith(names, "or") }

func joinWith(names []string, word string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + word + " " + names[len(names)-1]
}
