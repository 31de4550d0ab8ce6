package buffer

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// skipFile is the name of a file in the state directory of the source. It lists the envelopes that
// an operator has decided to skip. Each line has a range of numbers and the time of the decision.
const skipFile = "buffer-skipped"

// maxSkipFile bounds the size of skipFile.
const maxSkipFile = 1 << 20

// decision is a line of skipFile.
type decision struct {
	span
	at string // time of the decision
}

// readSkips returns the decisions in skipFile. It ignores a line that a crash has truncated.
func readSkips(dir vfs.Dir) ([]decision, error) {
	text, err := readFile(dir, skipFile, maxSkipFile)
	if err != nil {
		return nil, err
	}
	if len(text) > maxSkipFile {
		return nil, fmt.Errorf("%s has more than %d bytes", skipFile, maxSkipFile)
	}
	var all []decision
	lines := strings.Split(string(text), "\n")
	for i, line := range lines[:len(lines)-1] {
		numbers, at, _ := strings.Cut(line, " ")
		s, err := parseSpan(numbers)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", skipFile, i+1, err)
		}
		all = append(all, decision{s, at})
	}
	return all, nil
}

// addSkip durably adds a range to skipFile.
func addSkip(dir vfs.Dir, s span, now time.Time) error {
	all, err := readSkips(dir)
	if err != nil {
		return err
	}
	return writeSkips(dir, append(all, decision{s, now.UTC().Format(time.RFC3339)}))
}

// currentSkips returns the ranges of envelopes to skip, for a store that ends at envelope last.
// skipFile may contain numbers beyond last, of envelopes that the store has lost, or of an earlier
// store. currentSkips removes these from the file, because new envelopes will get these numbers. It
// returns an error if the range of the option `skip` extends beyond last.
func currentSkips(o Options, state vfs.Dir, last uint64) ([]span, error) {
	option, err := o.skipped()
	if err != nil {
		return nil, err
	}
	if option.last > last {
		return nil, stream.OptionErrorf("buffer.skip", "is %s, but the store ends at envelope %d: "+
			"new envelopes would be skipped; remove the option, or end its range there", o.Skip, last)
	}
	recorded, err := readSkips(state)
	if err != nil {
		return nil, err
	}
	var kept []decision
	var spans []span
	for _, d := range recorded {
		if d.last = min(d.last, last); d.first <= d.last {
			kept, spans = append(kept, d), append(spans, d.span)
		}
	}
	if !slices.Equal(kept, recorded) {
		if err := writeSkips(state, kept); err != nil {
			return nil, err
		}
	}
	if option != (span{}) {
		spans = append(spans, option)
	}
	return spans, nil
}

// writeSkips durably replaces the decisions in skipFile.
func writeSkips(dir vfs.Dir, all []decision) error {
	const temporary = skipFile + ".new"
	f, err := dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for _, d := range all {
		if err == nil {
			_, err = fmt.Fprintf(f, "%d-%d %s\n", d.first, d.last, d.at)
		}
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(dir.Rename(temporary, dir, skipFile), dir.Sync())
}

// skipOf returns the range that contains the envelope with the given number. ok is false if there
// is none.
func skipOf(spans []span, number uint64) (s span, ok bool) {
	k := slices.IndexFunc(spans, func(s span) bool { return s.has(number) })
	if k < 0 {
		return span{}, false
	}
	return spans[k], true
}
