//penstock:pure

package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/flow/ledger"
)

// docs/formats/mark.md describes the lines.
const (
	magic   = "penstock-mark " // followed by the version; the same in all future versions
	version = 1                // the version written

	// maxSize is the maximum size of a mark in bytes. It suffices for about 65,000 ranges with keys
	// of 500 printable ASCII characters.
	maxSize = 64 << 20
)

var (
	errNoMark = errors.New("it does not begin like a mark")
	errShort  = errors.New("it ends too early")
	errSum    = errors.New("its checksum is wrong")
	errLines  = errors.New("its lines are malformed")
	errSize   = fmt.Errorf("it is larger than the limit of %d bytes", maxSize)
)

// errNewer means that a newer program wrote the mark.
var errNewer = errors.New("written by a newer penstock")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns a mark in the form in which a [File] stores it, including the checksum. So it can
// be stored elsewhere, for example in a database column. The ranges must be as returned by
// [ledger.Ledger.Progress]: ascending, disjoint, above the watermark and not adjacent. Otherwise
// Encode returns an error. It also returns an error for a mark of more than 64 MiB.
func Encode(watermark ledger.Position, above []ledger.Range) ([]byte, error) {
	if err := check(watermark, above); err != nil {
		return nil, err
	}
	text := appendMark(nil, version, watermark, above)
	if len(text) > maxSize {
		return nil, fmt.Errorf("a mark of %d ranges: %w", len(above), errSize)
	}
	return text, nil
}

// Decode parses the result of [Encode]. If it returns an error, text is not a complete mark that
// this program can read, and the program must not resume from it.
func Decode(text []byte) (watermark ledger.Position, above []ledger.Range, err error) {
	return decode(text, version)
}

func decode(text []byte, newest int) (watermark ledger.Position, above []ledger.Range, err error) {
	none := ledger.Position{}
	if len(text) > maxSize {
		return none, nil, errSize
	}
	rest, ok := bytes.CutPrefix(text, []byte(magic))
	if !ok {
		return none, nil, errNoMark
	}
	number, rest, ok := bytes.Cut(rest, []byte("\n"))
	form, err := strconv.Atoi(string(number))
	if !ok || err != nil || form < 1 {
		return none, nil, errNoMark
	}
	if form > newest {
		return none, nil, fmt.Errorf("%w: its form is %d, this program reads up to %d", errNewer,
			form, newest)
	}
	body, sum, ok := cutLast(rest)
	if !ok {
		return none, nil, errShort
	}
	if sum != sumLine(text[:len(text)-len(rest)+len(body)]) {
		return none, nil, errSum
	}
	if watermark, above, err = parse(string(body)); err != nil {
		return none, nil, err
	}
	if err := check(watermark, above); err != nil {
		return none, nil, err
	}
	// Reject text that Encode would not produce, such as two spaces.
	if !bytes.Equal(text, appendMark(nil, form, watermark, above)) {
		return none, nil, errLines
	}
	return watermark, above, nil
}

// cutLast removes the last line of text. It returns false if text does not end with a complete
// line.
func cutLast(text []byte) (before []byte, last string, ok bool) {
	if len(text) == 0 || text[len(text)-1] != '\n' {
		return nil, "", false
	}
	at := bytes.LastIndexByte(text[:len(text)-1], '\n') + 1
	return text[:at], string(text[at : len(text)-1]), true
}

func sumLine(before []byte) string {
	return fmt.Sprintf("crc32c %08x", crc32.Checksum(before, castagnoli))
}

func appendMark(dst []byte, form int, watermark ledger.Position, above []ledger.Range) []byte {
	dst = fmt.Appendf(dst, "%s%d\nwatermark", magic, form)
	dst = appendPosition(dst, watermark)
	for _, r := range above {
		dst = append(dst, "\nsettled"...)
		dst = appendPosition(dst, r.From)
		dst = appendPosition(dst, r.To)
	}
	dst = append(dst, '\n')
	return append(append(dst, sumLine(dst)...), '\n')
}

// appendPosition quotes keys as ASCII, because the set of printable characters differs between
// versions of Unicode.
func appendPosition(dst []byte, p ledger.Position) []byte {
	dst = strconv.AppendInt(append(dst, ' '), p.Num, 10)
	if p.Key != "" {
		dst = strconv.AppendQuoteToASCII(append(dst, ' '), p.Key)
	}
	return dst
}

// parse parses the watermark and the settled ranges: the lines between the first line of a mark and
// its checksum.
func parse(body string) (watermark ledger.Position, above []ledger.Range, err error) {
	seen := false
	for line := range strings.Lines(body) {
		word, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		first, rest, ok := cutPosition(rest)
		switch {
		case ok && word == "watermark" && !seen && rest == "":
			watermark, seen = first, true
			continue
		case ok && word == "settled" && seen:
			if last, rest, ok := cutPosition(strings.TrimPrefix(rest, " ")); ok && rest == "" {
				above = append(above, ledger.Range{From: first, To: last})
				continue
			}
		}
		return ledger.Position{}, nil, errLines
	}
	if !seen {
		return ledger.Position{}, nil, errLines
	}
	return watermark, above, nil
}

// cutPosition parses a position at the beginning of text.
func cutPosition(text string) (p ledger.Position, rest string, ok bool) {
	number, rest, more := strings.Cut(text, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return p, "", false
	}
	p.Num = n
	if !more || !strings.HasPrefix(rest, `"`) {
		return p, rest, true
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return p, "", false
	}
	p.Key, err = strconv.Unquote(quoted)
	return p, rest[len(quoted):], err == nil
}

// check returns an error if the ranges of a mark are invalid.
func check(watermark ledger.Position, above []ledger.Range) error {
	end := watermark
	for _, r := range above {
		if r.From.Compare(end) <= 0 {
			return fmt.Errorf("the settled range %v begins at or before %v, "+
				"where what is before it ends", r, end)
		}
		if r.To.Compare(r.From) <= 0 {
			return fmt.Errorf("the settled range %v is empty", r)
		}
		end = r.To
	}
	return nil
}
