// Package limit has programs, called limits, that show how fast the machine can do the work of a
// workload. They do nothing except this work: they store no positions, do not retry, and sync only
// if the workload requires it. Each limit runs in a separate process.
package limit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// readSize is the size of reads. It is penstock's default for the size of a batch, which is about
// the size of its reads.
const readSize = 256 << 10

// Main runs the limit args[0] with the other arguments.
func Main(args []string) error {
	if len(args) < 2 {
		return errors.New("limit: name one, and its input")
	}
	name, from, more := args[0], args[1], args[2:]
	if want := operands[name]; len(more) < want {
		return fmt.Errorf("limit %s: %d operands behind the input are missing", name,
			want-len(more))
	}
	switch name {
	case "count":
		return count(from)
	case "lines":
		return lines(from)
	case "copy":
		return copyFile(from, more[0], false)
	case "copy_fsync":
		return copyFile(from, more[0], true)
	case "post":
		return postFile(from, more)
	case "encoding_json":
		return encodingJSON(from, more[0])
	case "regexp":
		return matchLines(from, more[0])
	case "sqlite":
		return insertLines(from, more[0])
	}
	return fmt.Errorf("no limit is called %q", name)
}

var operands = map[string]int{"copy": 1, "copy_fsync": 1, "post": 1, "encoding_json": 1,
	"regexp": 1, "sqlite": 1}

// count reads a file and counts its line ends.
func count(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, readSize)
	n := 0
	for {
		k, err := f.Read(buf)
		n += bytes.Count(buf[:k], []byte("\n"))
		if errors.Is(err, io.EOF) {
			fmt.Println(n)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// lines splits a file into lines. It reads the first and the last byte of each.
func lines(path string) error {
	sum := 0
	err := eachLine(path, func(line []byte) error {
		if len(line) > 0 {
			sum += int(line[0]) + int(line[len(line)-1])
		}
		return nil
	})
	fmt.Println(sum)
	return err
}

// eachLine calls do with each line of a file, without its line end.
func eachLine(path string, do func(line []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, readSize)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if err := do(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// copyFile copies a file with reads and writes. If sync is set, it syncs the copy to the disk.
func copyFile(from, to string, sync bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	buf := make([]byte, readSize)
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, buf); err != nil {
		return err
	}
	if sync {
		if err := out.Sync(); err != nil {
			return err
		}
	}
	return out.Close()
}
