package buffer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/vfs"
)

// skipFile is the name of a file in the state directory of the source. It lists the envelopes that
// an operator has decided to skip. Each line has a range of numbers and the time of the decision.
const skipFile = "buffer-skipped"

// maxSkipFile bounds the size of skipFile.
const maxSkipFile = 1 << 20

// readSkips returns the ranges in skipFile. It ignores a line that a crash has truncated.
func readSkips(dir vfs.Dir) ([]span, error) {
	f, err := dir.Open(skipFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSkipFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxSkipFile {
		return nil, fmt.Errorf("%s has more than %d bytes", skipFile, maxSkipFile)
	}
	var spans []span
	lines := strings.Split(string(text), "\n")
	for i, line := range lines[:len(lines)-1] {
		numbers, _, _ := strings.Cut(line, " ")
		s, err := parseSpan(numbers)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", skipFile, i+1, err)
		}
		spans = append(spans, s)
	}
	return spans, nil
}

// appendSkip durably appends a range to skipFile.
func appendSkip(dir vfs.Dir, s span, now time.Time) error {
	f, err := dir.OpenFile(skipFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d-%d %s\n", s.first, s.last, now.UTC().Format(time.RFC3339))
	return errors.Join(err, f.Sync(), f.Close(), dir.Sync())
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
