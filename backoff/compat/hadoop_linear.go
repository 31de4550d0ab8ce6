//penstock:pure

package compat

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/penstock-io/penstock/backoff"
)

// HadoopPair is a number of retries with the same sleep, for HadoopMultipleLinearRandom.
type HadoopPair struct {
	Retries int
	Sleep   time.Duration // whole milliseconds
}

// HadoopLinear is MultipleLinearRandomRetry: see [HadoopMultipleLinearRandom].
type HadoopLinear struct{ pairs *[]HadoopPair }

// HadoopMultipleLinearRandom returns a policy that retries with the sleep of each pair in turn.
// Each sleep is multiplied by a draw of U[0.5, 1.5) and rounded to milliseconds.
//
// Quirk: the first pair serves one retry more than its Retries, so "10000,6,60000,10" gives 7
// retries of 10 s and 10 of 60 s.
func HadoopMultipleLinearRandom(pairs ...HadoopPair) HadoopLinear {
	own := slices.Clone(pairs)
	return HadoopLinear{&own}
}

// ParseHadoopMultipleLinearRandom reads "sleep1,retries1,sleep2,retries2,...", with sleeps in
// milliseconds. It accepts spaces around numbers, a plus sign and trailing commas. It does not
// accept 0, a negative number or an odd count of numbers. For an invalid text it returns nil, as
// the original returns null.
func ParseHadoopMultipleLinearRandom(text string) *HadoopLinear {
	elements := strings.Split(text, ",")
	// Java's split leaves out empty elements at the end, unless the whole text is empty.
	if text != "" {
		for len(elements) > 0 && elements[len(elements)-1] == "" {
			elements = elements[:len(elements)-1]
		}
	}
	if len(elements) == 0 || len(elements)%2 != 0 {
		return nil
	}
	var pairs []HadoopPair
	for i := 0; i < len(elements); i += 2 {
		sleep, retries := positiveInt(elements[i]), positiveInt(elements[i+1])
		if sleep < 0 || retries < 0 {
			return nil
		}
		pairs = append(pairs, HadoopPair{int(retries), millis(sleep)})
	}
	p := HadoopMultipleLinearRandom(pairs...)
	return &p
}

// positiveInt parses the trimmed text like Java's Integer.parseInt. It returns -1 if the text is no
// number or the number is 0 or less.
func positiveInt(text string) int64 {
	trimmed := strings.TrimFunc(text, func(r rune) bool { return r <= ' ' })
	n, err := strconv.ParseInt(strings.Map(javaDigit, trimmed), 10, 32)
	if err != nil || n <= 0 {
		return -1
	}
	return n
}

// javaDigit converts a decimal digit of any script to an ASCII digit, like Java's Character.digit
// for digits of one UTF-16 unit. It returns other characters unchanged.
func javaDigit(r rune) rune {
	for _, block := range unicode.Nd.R16 { // each is of ten digits, or of several tens
		if from, to := rune(block.Lo), rune(block.Hi); from <= r && r <= to {
			return '0' + (r-from)%10
		}
	}
	return r
}

// Pairs returns a copy of the pairs of retries and sleep.
func (p HadoopLinear) Pairs() []HadoopPair {
	if p.pairs == nil {
		return nil
	}
	return slices.Clone(*p.pairs)
}

// pair returns the pair (a sleep and a number of retries) that decides about a retry. As in the
// original, the first pair serves one retry more than its Retries.
func (p HadoopLinear) pair(retries int64) (HadoopPair, bool) {
	if p.pairs == nil {
		return HadoopPair{}, false
	}
	for _, pair := range *p.pairs {
		if retries <= int64(pair.Retries) {
			return pair, true
		}
		retries -= int64(pair.Retries)
	}
	return HadoopPair{}, false
}

// String returns the text of the original, such as MultipleLinearRandomRetry[6x10000ms,
// 10x60000ms].
func (p HadoopLinear) String() string { return "MultipleLinearRandomRetry" + p.list() }

func (p HadoopLinear) list() string {
	var texts []string
	for _, pair := range p.Pairs() {
		texts = append(texts, fmt.Sprintf("%dx%dms", pair.Retries, pair.Sleep.Milliseconds()))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (p HadoopLinear) wait(pair HadoopPair, u float64) time.Duration {
	return millis(javaRound(float64(float64(pair.Sleep.Milliseconds()) * float64(u+.5))))
}

// Decide implements Hadoop.
func (p HadoopLinear) Decide(f HadoopFailure, src rand.Source) HadoopDecision {
	pair, ok := p.pair(int64(f.Retries))
	if !ok {
		return HadoopDecision{Reason: "Retry all pairs in MultipleLinearRandomRetry: " + p.list()}
	}
	return HadoopDecision{Action: HadoopRetry, Delay: p.wait(pair, uniform(src))}
}

// Next implements backoff.Policy.
func (p HadoopLinear) Next(s backoff.State, src rand.Source) (time.Duration, backoff.State, bool) {
	pair, ok := p.pair(int64(s.N))
	if !ok || p.Validate() != nil {
		return 0, s, false
	}
	d := p.wait(pair, uniform(src))
	return d, s.After(d), true
}

// Bounds implements backoff.Bounder.
func (p HadoopLinear) Bounds(n int) (lowest, mean, highest time.Duration) {
	pair, ok := p.pair(int64(step(n)))
	if !ok || p.Validate() != nil {
		return 0, 0, 0
	}
	at := func(u float64) time.Duration { return p.wait(pair, u) }
	return ordered(at(0), middle(at), at(largest))
}

// Validate implements backoff.Validator. It returns the errors of the original and of its parser.
func (p HadoopLinear) Validate() error {
	if p.pairs == nil || len(*p.pairs) == 0 {
		//lint:ignore ST1005 the original's text
		return errors.New("pairs must be neither null nor empty.")
	}
	for _, pair := range *p.pairs {
		if pair.Retries < 0 {
			return fmt.Errorf("numRetries = %d < 0", pair.Retries)
		}
		if pair.Sleep < 0 {
			return fmt.Errorf("sleepMillis = %d < 0", pair.Sleep.Milliseconds())
		}
	}
	return nil
}
