//penstock:pure

package parse

import (
	"bytes"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// straight matches the regular expressions that logs are read by, `^(?P<host>\S+)
// \[(?P<time>[^\]]+)\] "(?P<agent>.*)"$` and the like, in one pass and without an engine: literals
// and runs of one class of characters, in a row, from the text's start. Of such an expression a
// text has at most one match when each run ends where the next step cannot begin within it, or when
// all that follows a run is literals up to the text's end; then taking as much as there is is the
// only way, and there is nothing to go back to. What is of any other form has no straight.
type straight struct {
	steps []step
	at    []int // of the groups in the text matched last, as regexp's FindSubmatchIndex gives them
}

// step is one of a straight. Those that are neither have a literal of no bytes: they only mark.
type step struct {
	literal []byte
	run     *class // nil: the literal
	least   int    // bytes of the run
	most    int    // -1: as many as there are
	tail    int    // of a run that only literals follow: how many bytes those are; -1: the run ends where its class does
	mark    int    // index of at that gets the place, behind which the step stands; -1: none
	end     bool   // the text ends here
}

// class is a set of bytes: of characters, for which either all or none of those beyond ASCII are in
// it.
type class struct {
	in    [256]bool
	stop  byte // the only byte that is not in it, where alone
	alone bool
	wide  bool // holds what is beyond ASCII
}

// newStraight returns nil for an expression of another form.
func newStraight(pattern string, groups int) *straight {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil
	}
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

// opMark is what flat puts where a group begins or ends; its number is in Min.
const opMark = syntax.Op(200)

// flat takes concatenations and groups apart.
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
	switch re.Op {
	case opMark:
		st.mark = re.Min
		return st, true
	case syntax.OpEndText:
		st.end = true
		return st, true
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 || slices.Contains(re.Rune, utf8.RuneError) { // U+FFFD matches bad bytes, too
			return st, false
		}
		st.literal = []byte(string(re.Rune))
		return st, true
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
	// Bytes are counted: for characters of several bytes only whether there is one.
	return st, st.run != nil && (!st.run.wide || st.least <= 1 && st.most == -1)
}

// classOf returns the bytes of a class of characters; nil: re is none, or some of those beyond
// ASCII are in it and others not.
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

// plan says whether each run has one place where it can end.
func (s *straight) plan() bool {
	for i := range s.steps {
		st := &s.steps[i]
		if st.end && !s.onlyMarks(i+1) {
			return false
		}
		if st.run == nil || st.least == st.most || s.ends(i+1, st.run) {
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

// ends says whether nothing of what c holds can stand where the steps from on begin.
func (s *straight) ends(from int, c *class) bool {
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
	return true
}

// literals is how many bytes of literals the steps from on are, up to the text's end; -1: they are
// something else.
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

// match returns the places of the groups in text, nil where it does not match. They are valid until
// the next call.
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
			if len(text)-i < len(st.literal) || string(text[i:i+len(st.literal)]) != string(st.literal) {
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

// past is where the run that begins at i ends; -1: it does not fit.
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

// past is where the bytes of text from i on are no more in c, end at most.
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
