//penstock:pure

// Package prose counts signs of comments and docs that are hard to read: clauses with "what", "who"
// or "whose", long sentences, wide lines, and words that this project avoids. See CONTRIBUTING.md
// for the rules. A finding is not always a mistake. So CI does not require zero findings, but
// checks that no package or page gets more.
package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Counts are the numbers of findings in a package or a page.
type Counts struct {
	Words   int      `json:"words"`             // words in comments, or on a page
	Clauses int      `json:"clauses,omitempty"` // such as "what", "who"
	Says    int      `json:"says,omitempty"`    // such as "says whether"
	Long    int      `json:"long,omitempty"`    // sentences with more than 30 words
	Wide    int      `json:"wide,omitempty"`    // lines with more than 100 columns
	Lines   int      `json:"lines"`
	Banned  []string `json:"-"` // as written in the text
}

const (
	maxSentence = 30
	maxColumns  = 100
	tabColumns  = 4
)

var (
	clauses = regexp.MustCompile(`(?i)\b(what|who|whoever|whose)\b`)
	says    = regexp.MustCompile(`(?i)\bsays? (whether|what|which|how|who|where)\b`)
	banned  = regexp.MustCompile(`(?i)\b(anew|in vain|for good|so many an?|such a one|none that|` +
		`undertaker|widow|mourn|purse|graves?|whoever)\b`)

	codeSpan = regexp.MustCompile("`[^`\n]*`")
	quoted   = regexp.MustCompile(`"[^"\n]*"`)
	linked   = regexp.MustCompile(`\[[^\]\n]*\](\([^)\n]*\))?`)
	fenced   = regexp.MustCompile("(?s)```.*?```")
	ends     = regexp.MustCompile(`[.!?:]["')]*(\s|$)`)
	table    = regexp.MustCompile(`(?m)^\s*\|.*$`)
)

// Add adds the counts of another part of the same package.
func (c *Counts) Add(o Counts) {
	c.Words += o.Words
	c.Clauses += o.Clauses
	c.Says += o.Says
	c.Long += o.Long
	c.Wide += o.Wide
	c.Lines += o.Lines
	c.Banned = append(c.Banned, o.Banned...)
}

// GoFile counts the findings in the comments and lines of a Go file.
func GoFile(name string, source []byte) (Counts, error) {
	file, err := parser.ParseFile(token.NewFileSet(), name, source,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return Counts{}, err
	}
	var c Counts
	for _, group := range file.Comments {
		c.Add(text(proseOf(group)))
	}
	for line := range strings.Lines(string(source)) {
		line = strings.TrimSuffix(line, "\n")
		c.Lines++
		if utf8.RuneCountInString(line)+(tabColumns-1)*strings.Count(line, "\t") > maxColumns {
			c.Wide++
		}
	}
	return c, nil
}

// proseOf returns the text of a comment. It omits directives and indented code.
func proseOf(group *ast.CommentGroup) string {
	var b strings.Builder
	for line := range strings.Lines(group.Text()) { // Text omits directives
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "    ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Page counts the findings on a Markdown page without its code. Words in tables count, but tables
// have no sentences.
func Page(source []byte) Counts {
	body := fenced.ReplaceAllString(string(source), "")
	c := text(table.ReplaceAllString(body, ""))
	cells := text(strings.Join(table.FindAllString(body, -1), "\n"))
	cells.Long = 0
	c.Add(cells)
	c.Lines = strings.Count(string(source), "\n")
	return c
}

func text(s string) (c Counts) {
	s = codeSpan.ReplaceAllString(s, "x")
	s = linked.ReplaceAllStringFunc(s, func(link string) string {
		return strings.Trim(link[:strings.IndexByte(link, ']')], "[")
	})
	s = quoted.ReplaceAllString(s, "x")
	c.Words = len(strings.Fields(s))
	c.Clauses = len(clauses.FindAllString(s, -1))
	c.Says = len(says.FindAllString(s, -1))
	c.Banned = banned.FindAllString(s, -1)
	for paragraph := range strings.SplitSeq(s, "\n\n") {
		for _, sentence := range ends.Split(paragraph, -1) {
			if len(strings.Fields(sentence)) > maxSentence {
				c.Long++
			}
		}
	}
	return c
}
