package buffer

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/penstock-io/penstock/vfs"
)

// lastFile is the name of a file in the state directory of the source. It contains the number of
// the last acknowledged envelope. The file is not synced. So after a power loss the number may be
// too low.
const lastFile = "buffer-last"

// lastSize is the size of the file: a number, its checksum and a line end.
const lastSize = 20 + 1 + 8 + 1

// lastRecord writes the number of the last envelope to lastFile. If the store ends before this
// number, it has lost its last envelopes.
type lastRecord struct{ file vfs.File }

func openLast(dir vfs.Dir) (*lastRecord, error) {
	f, err := dir.OpenFile(lastFile, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &lastRecord{f}, nil
}

func lastText(number uint64) string {
	text := fmt.Sprintf("%020d", number)
	return fmt.Sprintf("%s %08x\n", text, crc32.Checksum([]byte(text), castagnoli))
}

// write writes a number to the file. The number survives the death of the process, but a power loss
// may lose it.
func (r *lastRecord) write(number uint64) error {
	_, err := r.file.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.WriteString(r.file, lastText(number))
	}
	return err
}

func (r *lastRecord) close() error { return r.file.Close() }

// readLast returns the number in lastFile. It returns 0 if there is no such file, or if a crash has
// damaged it.
func readLast(dir vfs.Dir) (uint64, error) {
	text, err := readFile(dir, lastFile, lastSize)
	if err != nil {
		return 0, err
	}
	var number uint64
	_, err = fmt.Sscanf(string(text), "%d", &number)
	if err != nil || lastText(number) != string(text) {
		return 0, nil
	}
	return number, nil
}

// readFile returns the content of a file of at most limit bytes, or nothing if there is no such
// file. It returns limit+1 bytes of a longer file.
func readFile(dir vfs.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	return text, errors.Join(err, f.Close())
}
