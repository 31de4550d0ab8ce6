//penstock:pure

package parse

import (
	"bytes"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// straight matches certain regular expressions, which are typical for logs, in one pass without
// backtracking. Example: `^(?P<host>\S+) \[(?P<time>[^\]]+)\] "(?P<agent>.*)"$`. Such an expression
// is a sequence of literals and runs. A run is a repeated character class, such as \S+.
//
// Each run must have only one possible end, so that a text has at most one match. This is so in
// four cases:
//
//   - The run has a fixed length.
//   - No character of its class can begin the next step.
//   - Only literals follow up to the end of the text.
//   - The match may end after the run, and the run takes as many characters as it can.
//
// For all other expressions, package regexp is used.
type straight struct {
	steps []step
	at    []int // positions of the groups, as in the result of regexp's FindSubmatchIndex
}

// step is one step of a match by straight. It is a literal, a run (a repeated character class) or
// the end of the text. A step with a mark matches no text: it stores the position at which a group
// starts or ends.
type step struct {
	literal []byte
	run     *class // nil for a literal
	least   int    // minimum length of the run in bytes
	most    int    // maximum length in bytes; -1 if there is none
	// The total length of the literals after the run, if they end the text and so determine the
	// end of the run. Otherwise -1.
	tail int
	lazy bool // the run is as short as possible
	mark int  // index in at for the position before this step; -1 if it is not stored
	end  bool // the text must end here
}

// class is a set of bytes. It is made from a character class with either all or none of the
// characters outside ASCII.
type class struct {
	in    [256]bool
	stop  byte // if alone is set: the only byte outside the set
	alone bool
	wide  bool // the set has the characters outside ASCII
}

// newStraight returns a matcher without backtracking for the expression. It returns nil if the
// expression needs package regexp.
func newStraight(re *syntax.Regexp, groups int) *straight {
	s := &straight{at: make([]int, 2*(groups+1))}
	parts := flat(nil, re)
	if len(parts) == 0 || parts[0].Op != syntax.OpBeginText {
		return nil
	}
	for _, part := range parts[1:] {
		st, ok := stepOf(part)
		if !ok {
			return nil
		}
		s.steps = append(s.steps, st)
	}
	if !s.plan() {
		return nil
	}
	return s
}

// opMark is an operator that package syntax does not have. The function flat adds an expression
// with it at the start and at the end of each group. Its field Min is an index of straight.at: the
// element in which match stores the position of this start or end.
const opMark = syntax.Op(200)

// flat returns re as a flat sequence, without nested concatenations and groups.
func flat(to []*syntax.Regexp, re *syntax.Regexp) []*syntax.Regexp {
	switch re.Op {
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			to = flat(to, sub)
		}
	case syntax.OpCapture:
		to = append(to, &syntax.Regexp{Op: opMark, Min: 2 * re.Cap})
		to = flat(to, re.Sub[0])
		to = append(to, &syntax.Regexp{Op: opMark, Min: 2*re.Cap + 1})
	case syntax.OpEmptyMatch:
	default:
		to = append(to, re)
	}
	return to
}

func stepOf(re *syntax.Regexp) (step, bool) {
	st := step{mark: -1, tail: -1}
	st.lazy = re.Flags&syntax.NonGreedy != 0
	switch re.Op {
	case opMark:
		st.mark = re.Min
		return st, true
	case syntax.OpEndText:
		st.end = true
		return st, true
	case syntax.OpLiteral:
		st.literal = []byte(string(re.Rune))
		return st, isExact(re)
	case syntax.OpStar:
		st.most = -1
		re = re.Sub[0]
	case syntax.OpPlus:
		st.least, st.most = 1, -1
		re = re.Sub[0]
	case syntax.OpRepeat:
		st.least, st.most = re.Min, re.Max
		re = re.Sub[0]
	default:
		st.least, st.most = 1, 1
	}
	st.run = classOf(re)
	// Lengths of runs are counted in bytes, but a character outside ASCII has several bytes. So for
	// a class with such characters, only two lengths can be checked: "at least one" and "any".
	return st, st.run != nil && (!st.run.wide || st.least <= 1 && st.most == -1)
}

// isExact reports whether re is a literal that matches only its own bytes. U+FFFD in an expression
// also matches invalid bytes.
func isExact(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase == 0 &&
		!slices.Contains(re.Rune, utf8.RuneError)
}

// classOf returns the bytes of a character class. It returns nil if re is not a class, or if the
// class has only some of the characters outside ASCII.
func classOf(re *syntax.Regexp) *class {
	c := new(class)
	var ranges []rune
	switch re.Op {
	case syntax.OpAnyChar:
		ranges = []rune{0, unicode.MaxRune}
	case syntax.OpAnyCharNotNL:
		ranges = []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune}
	case syntax.OpCharClass:
		ranges = re.Rune
	case syntax.OpLiteral:
		if len(re.Rune) != 1 || re.Rune[0] >= utf8.RuneSelf || re.Flags&syntax.FoldCase != 0 {
			return nil
		}
		ranges = []rune{re.Rune[0], re.Rune[0]}
	default:
		return nil
	}
	for i := 0; i < len(ranges); i += 2 {
		low, high := ranges[i], ranges[i+1]
		if high >= utf8.RuneSelf {
			if low > utf8.RuneSelf || high != unicode.MaxRune {
				return nil
			}
			c.wide = true
			for b := utf8.RuneSelf; b < len(c.in); b++ {
				c.in[b] = true
			}
		}
		for b := low; b <= high && b < utf8.RuneSelf; b++ {
			c.in[b] = true
		}
	}
	out := 0
	for b, in := range c.in {
		if !in {
			out++
			c.stop = byte(b)
		}
	}
	c.alone = out == 1
	return c
}

// plan reports whether each run (a repeated character class) has only one possible end. It sets the
// field tail of the runs that only literals follow.
func (s *straight) plan() bool {
	for i := range s.steps {
		st := &s.steps[i]
		if st.end && !s.onlyMarks(i+1) {
			return false
		}
		if st.run == nil || st.least == st.most || s.ends(i+1, st) {
			continue
		}
		if st.tail = s.literals(i + 1); st.tail < 0 {
			return false
		}
	}
	return true
}

func (s *straight) onlyMarks(from int) bool {
	return !slices.ContainsFunc(s.steps[from:], func(st step) bool { return st.mark < 0 })
}

// ends reports whether a run always extends to the first character that is not in its class. This
// is so if a match of the steps after the run, s.steps[from:], cannot begin with a character of the
// class. If these steps can match an empty text, the run must also be greedy and have no maximum
// length. For example, ends returns false for `^\d{1,3}` and `^\d+?`, which match only a part of
// the digits of 2026.
func (s *straight) ends(from int, run *step) bool {
	c := run.run
	for _, st := range s.steps[from:] {
		switch {
		case st.mark >= 0:
		case st.end:
			return true
		case st.run == nil:
			return !c.in[st.literal[0]]
		default:
			for b, in := range st.run.in {
				if in && c.in[b] {
					return false
				}
			}
			if st.least > 0 {
				return true
			}
		}
	}
	return run.most < 0 && !run.lazy
}

// literals returns the total length of the literals in s.steps[from:]. It returns -1 if one of the
// steps is a run, or if text may follow the last step.
func (s *straight) literals(from int) (n int) {
	for _, st := range s.steps[from:] {
		if st.run != nil {
			return -1
		}
		if st.end {
			return n
		}
		n += len(st.literal)
	}
	return -1
}

// match returns the positions of the groups in text. They are valid until the next call. It returns
// nil if text does not match.
func (s *straight) match(text []byte) []int {
	i := 0
	for k := range s.steps {
		st := &s.steps[k]
		switch {
		case st.mark >= 0:
			s.at[st.mark] = i
		case st.end:
			if i != len(text) {
				return nil
			}
		case st.run == nil:
			if len(text)-i < len(st.literal) ||
				string(text[i:i+len(st.literal)]) != string(st.literal) {
				return nil
			}
			i += len(st.literal)
		default:
			to := st.past(text, i)
			if to < 0 {
				return nil
			}
			i = to
		}
	}
	s.at[0], s.at[1] = 0, i
	return s.at
}

// past returns the end of the run that begins at i, or -1 if the text does not match there.
func (st *step) past(text []byte, i int) int {
	end := len(text)
	if st.tail >= 0 {
		if end -= st.tail; end < i {
			return -1
		}
	}
	if st.most == st.least && end-i > st.most {
		end = i + st.most
	}
	to := st.run.past(text, i, end)
	if to-i < st.least || st.most >= 0 && to-i > st.most || st.tail >= 0 && to != end {
		return -1
	}
	return to
}

// past returns the end of the run of bytes of c that begins at i, but at most the parameter end.
func (c *class) past(text []byte, i, end int) int {
	if c.alone {
		if n := bytes.IndexByte(text[i:end], c.stop); n >= 0 {
			return i + n
		}
		return end
	}
	for ; i < end && c.in[text[i]]; i++ {
	}
	return i
}
