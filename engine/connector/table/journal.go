package table

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/wire"
)

// journal is a file that keeps the state for the search for late rows of a partition. A late row
// becomes visible only after rows with greater keys were read. The state consists of the last rows
// that were handed out, and the late rows found so far. The entry of a row is written before the
// row is handed out. docs/formats/table-seen.md describes the format.
type journal struct {
	dir  vfs.Dir
	name string
	id   string // id of the partition
	f    vfs.File
	size int64
	bare int64 // size of the file after the last rewrite
}

const (
	journalMagic  = "PENSTOCK-SEEN-2\n"
	journalMagic1 = "PENSTOCK-SEEN-1\n" // without digests and deleted rows
	// journalMax is the maximum size of a file that can be opened. maxRescan keys of maximum length
	// need half of it.
	journalMax     = 1 << 31
	journalSlack   = 1 << 20 // growth in bytes after which the file is rewritten
	entryHead      = 8       // length and checksum
	entryPartition = 'P'
	entryFloor     = 'F'
	entryKeys      = 'K' // version 1
	entryRows      = 'R'
	entryAbsent    = 'A'
	entryFound     = 'L'
	entryPruned    = 'G'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journalState is the content of a journal.
type journalState struct {
	seen   seenRows
	found  []discovery // late rows, ascending by number
	pruned int64       // the highest number of a late row that was removed because it is settled
}

// openJournal reads the journal of a partition into m. known reports whether the journal existed.
// openJournal removes the entries from the first incomplete or damaged one on. An incomplete entry
// was not durable, and so its rows were not handed out.
func openJournal(dir vfs.Dir, id string, m *journalState) (j *journal, known bool, err error) {
	sum := sha256.Sum256([]byte(id))
	j = &journal{dir: dir, id: id, name: hex.EncodeToString(sum[:16]) + ".seen"}
	f, err := dir.OpenFile(j.name, os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return j, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err == nil && info.Size > journalMax {
		err = fmt.Errorf("it has %d bytes, more than penstock ever writes", info.Size)
	}
	var text []byte
	if err == nil {
		text = make([]byte, info.Size)
		if _, err = f.ReadAt(text, 0); err == io.EOF {
			err = nil
		}
	}
	if err == nil {
		j.size, err = m.read(text, id)
	}
	if err == nil && j.size < info.Size {
		err = f.Truncate(j.size)
	}
	if err == nil {
		_, err = f.Seek(j.size, io.SeekStart)
	}
	if err != nil {
		return nil, false, errors.Join(fmt.Errorf("%s in %s: %w", j.name, dir.Path(), err),
			f.Close())
	}
	j.f, j.bare = f, j.size
	return j, true, nil
}

// read applies the entries of a journal to m. The parameter text is the content of the journal. The
// result is the end of the last complete entry.
func (m *journalState) read(text []byte, id string) (good int64, err error) {
	if magic := string(text[:min(len(text), len(journalMagic))]); magic != journalMagic && magic != journalMagic1 {
		return 0, errors.New("it is not a journal of this version; move it away: then only late " +
			"rows that are committed from now on are found")
	}
	rest := text[len(journalMagic):]
	for len(rest) >= entryHead {
		n := int(binary.LittleEndian.Uint32(rest))
		if n < 1 || n > len(rest)-entryHead {
			break
		}
		body := rest[entryHead : entryHead+n]
		if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(rest[4:]) {
			break
		}
		if body[0] == entryPartition && string(body[1:]) != id {
			return 0, fmt.Errorf("it belongs to partition %q, not %q", body[1:], id)
		}
		if !m.apply(body[0], body[1:]) {
			break
		}
		rest = rest[entryHead+n:]
	}
	return int64(len(text) - len(rest)), nil
}

// apply applies one entry to m. It returns false if the entry is invalid.
func (m *journalState) apply(kind byte, body []byte) bool {
	r := wire.Reader{Rest: body}
	switch kind {
	case entryPartition:
		return true
	case entryFloor:
		m.seen.floor = string(body)
		return true
	case entryPruned:
		m.prune(int64(r.Uvarint()))
	case entryKeys, entryRows:
		if rows := decodeRows(&r, kind == entryRows); r.Done() {
			m.seen.add(rows)
		}
	case entryAbsent:
		if rows := decodeRows(&r, false); r.Done() {
			m.seen.remove(rows)
		}
	case entryFound:
		if d := (discovery{int64(r.Uvarint()), r.Text()}); !r.Bad {
			m.found = append(m.found, d)
			m.seen.add([]seenRow{{key: d.key}})
		}
	default:
		return false
	}
	return !r.Bad
}

// decodeRows decodes the keys of rows. If digests is set, the digest of a row follows its key.
func decodeRows(r *wire.Reader, digests bool) (rows []seenRow) {
	for len(r.Rest) > 0 {
		row := seenRow{key: r.Text()}
		if digests {
			digest := r.Take(uint64(binary.Size(row.digest)))
			_, err := binary.Decode(digest, binary.LittleEndian, &row.digest)
			r.Bad = r.Bad || err != nil
		}
		rows = append(rows, row)
	}
	return rows
}

// prunable returns the highest number up to which all late rows can be removed from m. A restart
// does not need a late row any more if two conditions hold. Its number is at most settled: the row
// itself is settled. Its key is at most main: the rows of the table are settled up to it.
func (m *journalState) prunable(settled int64, main string) (num int64) {
	for _, d := range m.found {
		if d.num > settled || d.key > main {
			break
		}
		num = d.num
	}
	return num
}

// prune removes the late rows up to number num, including this one, from m.
func (m *journalState) prune(num int64) {
	for len(m.found) > 0 && m.found[0].num <= num {
		m.found = m.found[1:]
	}
	m.pruned = max(m.pruned, num)
}

func appendEntry(dst []byte, kind byte, body ...[]byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0, kind)
	for _, b := range body {
		dst = append(dst, b...)
	}
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-entryHead))
	binary.LittleEndian.PutUint32(dst[at+4:], crc32.Checksum(dst[at+entryHead:], castagnoli))
	return dst
}

// appendRows appends an entry of the given kind with the keys of rows. If the kind is entryRows,
// the digest of a row follows its key.
func appendRows(dst []byte, kind byte, rows []seenRow) []byte {
	var body []byte
	for _, r := range rows {
		body = append(binary.AppendUvarint(body, uint64(len(r.key))), r.key...)
		for i := 0; kind == entryRows && i < len(r.digest); i++ {
			body = binary.LittleEndian.AppendUint16(body, r.digest[i])
		}
	}
	return appendEntry(dst, kind, body)
}

func appendFound(dst []byte, d discovery) []byte {
	numbers := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(d.num)), uint64(len(d.key)))
	return appendEntry(dst, entryFound, numbers, []byte(d.key))
}

// write makes entries durable. When the file has grown by journalSlack, write replaces it by a new
// file with the content of m. After an error, the journal must not be used any more.
func (j *journal) write(m *journalState, entries []byte) error {
	if j.f == nil || j.size+int64(len(entries)) > j.bare+journalSlack {
		return j.rewrite(m)
	}
	n, err := j.f.Write(entries)
	j.size += int64(n)
	if err == nil {
		err = j.f.Sync()
	}
	return err
}

// rewrite replaces the file by a new one with the content of m.
func (j *journal) rewrite(m *journalState) error {
	text := appendEntry([]byte(journalMagic), entryPartition, []byte(j.id))
	text = appendEntry(text, entryFloor, []byte(m.seen.floor))
	text = appendRows(text, entryRows, m.seen.rows)
	text = appendEntry(text, entryPruned, binary.AppendUvarint(nil, uint64(m.pruned)))
	for _, d := range m.found {
		text = appendFound(text, d)
	}
	temp := j.name + ".tmp"
	f, err := j.dir.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = j.dir.Rename(temp, j.dir, j.name)
	}
	if err == nil {
		err = j.dir.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	old := j.f
	j.f, j.size, j.bare = f, int64(len(text)), int64(len(text))
	if old != nil {
		return old.Close()
	}
	return nil
}

func (j *journal) close() error {
	if j == nil || j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return err
}
