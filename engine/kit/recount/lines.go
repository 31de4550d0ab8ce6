package recount

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// MaxLine is the maximum length of a line for [Count.FoundLines], in bytes.
const MaxLine = 64 << 20

// ExpectRecord adds the lines of record i of b as expected texts, each with the given id. With
// asJSON, this is the record's JSON object. Otherwise these are its original bytes.
func (c *Count) ExpectRecord(b *stream.Batch, i int, id []byte, asJSON bool) error {
	if c.text = c.text[:0]; asJSON {
		c.text = ndjson.AppendRecord(c.text, b, i)
	} else {
		c.text = append(c.text, bytes.TrimSuffix(b.Raw(i), []byte("\n"))...)
	}
	for line := range bytes.SplitSeq(c.text, []byte("\n")) {
		if err := c.Expect(id, line); err != nil {
			return err
		}
	}
	return nil
}

// FoundLines adds each line of r, without its LF, as a text that was found. A carriage return is a
// part of its line.
func (c *Count) FoundLines(ctx context.Context, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.Found(lines.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("it has a line of more than %d bytes", MaxLine)
	}
	return lines.Err()
}

// wholeLines is like bufio.ScanLines, but keeps carriage returns.
func wholeLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}
