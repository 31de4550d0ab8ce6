package load

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Kind is a kind of log lines.
type Kind string

// Values of Kind.
const (
	Combined Kind = "combined" // generated lines of an access log
	JSON     Kind = "json"     // generated lines of nested JSON
	Real     Kind = "real"     // logs of real systems in the folder PENSTOCK_DATA
)

// linesAtOnce is the number of lines in a block of generated lines. A file repeats these lines. In
// each repetition they have new numbers.
const linesAtOnce = 20_000

// Block is a set of log lines. Each line contains a mark, into which Number writes the number of
// the line.
type Block struct {
	text  []byte
	holes []int // offset of each line's number in text
	ends  []int // offset of the end of each line, after its line end
	timed bool
}

// NewBlock returns a block of lines that penstock generates. program is its path. If kind is Real,
// the lines come from the *.log files in the folder that PENSTOCK_DATA names. The mark of each line
// has room for its number and, if timed is set, for the time at which the line is written.
func NewBlock(program string, kind Kind, timed bool) (*Block, error) {
	lines, err := source(program, kind)
	if err != nil {
		return nil, err
	}
	b := &Block{timed: timed}
	mark := strings.Repeat("0", numberWidth) + string(tilde)
	if timed {
		mark += strings.Repeat("0", timeWidth) + string(tilde)
	}
	for line := range bytes.Lines(lines) {
		line = bytes.TrimRight(line, "\r\n")
		at, before, after := len(line), " ~", ""
		switch kind {
		case Combined: // the last thing within the quotes of the user agent
			at = len(line) - 1
		case JSON: // the first member
			at, before, after = 1, `"id":"~`, `",`
		}
		b.text = append(append(b.text, line[:at]...), before...)
		b.holes = append(b.holes, len(b.text))
		b.text = append(append(append(b.text, mark...), after...), line[at:]...)
		b.text = append(b.text, '\n')
		b.ends = append(b.ends, len(b.text))
	}
	if len(b.ends) == 0 {
		return nil, fmt.Errorf("no lines of kind %s", kind)
	}
	return b, nil
}

func source(program string, kind Kind) ([]byte, error) {
	if kind != Real {
		out, err := exec.Command(program, "generate", "--format", string(kind), "--lines",
			fmt.Sprint(linesAtOnce), "--seed", "1").Output()
		if err != nil {
			return nil, fmt.Errorf("%s generate: %w", program, err)
		}
		return out, nil
	}
	folder := os.Getenv("PENSTOCK_DATA")
	if folder == "" {
		return nil, errors.New("PENSTOCK_DATA names no folder of real logs")
	}
	names, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(append(all, text...), '\n')
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(all, []byte("~"), []byte("-")), []byte("\n\n"),
		[]byte("\n")), nil
}

// Lines returns the number of lines in a block.
func (b *Block) Lines() int { return len(b.ends) }

// Bytes returns the total length of the lines.
func (b *Block) Bytes() int64 { return int64(len(b.text)) }

// Number writes numbers into the marks of the lines with from <= index < to. The parameter first is
// the number of the first of these lines, and the numbers ascend by one. If the marks have room for
// a time, Number also writes now. It returns the text of these lines, which is valid until the next
// call.
func (b *Block) Number(from, to int, first int64, now time.Time) []byte {
	for i := from; i < to; i++ {
		put(b.text[b.holes[i]:][:numberWidth], uint64(first)+uint64(i-from))
		if b.timed {
			put(b.text[b.holes[i]+numberWidth+1:][:timeWidth], uint64(now.UnixMicro()))
		}
	}
	begin := 0
	if from > 0 {
		begin = b.ends[from-1]
	}
	return b.text[begin:b.ends[to-1]]
}

// put writes n with leading zeros, so that it fills room.
func put(room []byte, n uint64) {
	for i := len(room) - 1; i >= 0; i-- {
		room[i] = byte('0' + n%10)
		n /= 10
	}
}

// Input is a file of numbered lines.
type Input struct {
	Path           string
	Bytes, Records int64
	Kind           Kind
}

// Write creates a file of at least size bytes by repeating the block. The last repetitions may be
// incomplete. The file is in the page cache, and its modification time is an hour ago.
func (b *Block) Write(path string, kind Kind, size int64) (Input, error) {
	in := Input{Path: path, Kind: kind}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return in, err
	}
	f, err := os.Create(path)
	if err != nil {
		return in, err
	}
	defer f.Close()
	for in.Bytes < size {
		to := len(b.ends)
		for in.Bytes+int64(b.ends[to-1]) > size && to > 1 {
			to = max(1, int(int64(to)*(size-in.Bytes)/int64(b.ends[to-1])))
		}
		n, err := f.Write(b.Number(0, to, in.Records, time.Time{}))
		if err != nil {
			return in, err
		}
		in.Bytes += int64(n)
		in.Records += int64(to)
	}
	if err := f.Sync(); err != nil {
		return in, err
	}
	old := time.Now().Add(-time.Hour)
	return in, os.Chtimes(path, old, old)
}
