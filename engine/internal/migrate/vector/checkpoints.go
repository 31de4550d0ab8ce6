package vector

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/vfs"
)

// stored describes the stored positions of a file source. It has the directory of the source's
// checkpoints, and the options of the checksums that identify files.
type stored struct {
	name             string
	include, exclude []string
	data             string
	lines            int // number of lines in the checksum
	skip             int // number of bytes to skip before them
	maxLine          int // maximum length of a line in bytes
}

// fingerprint reads the options of the checksum from v, the section fingerprint of a source.
func (s *stored) fingerprint(v *migrate.Value) {
	s.lines = cmp.Or(v.Positive("lines"), 1)
	s.skip = v.Positive("ignored_header_bytes")
	v.Ignore("strategy", "bytes")
}

// checkpoints is the content of checkpoints.json.
type checkpoints struct {
	Version     string `json:"version"`
	Checkpoints []struct {
		Fingerprint struct {
			Lines    *uint64   `json:"first_lines_checksum"`
			Line     *uint64   `json:"first_line_checksum"` // written before Vector 0.18
			Checksum *uint64   `json:"checksum"`
			DevInode [2]uint64 `json:"dev_inode"`
		} `json:"fingerprint"`
		Position int64 `json:"position"`
	} `json:"checkpoints"`
}

// carry converts the stored positions of the source's files. A checkpoint of Vector does not
// contain the path of its file. So carry compares each file that the source would read with all
// checkpoints.
func (s stored) carry(files vfs.FS, dir string) (migrate.Carried, error) {
	c := &migrate.Carrier{Files: files, Base: dir, Program: "Vector"}
	name := c.Path(filepath.Join(s.data, s.name, "checkpoints.json"))
	text, err := c.Read(name)
	if err != nil {
		return c.Carried, fmt.Errorf("checkpoints: %w", err)
	}
	if text == nil {
		c.Note("checkpoints", migrate.Differs, "%s does not exist: the option start applies to "+
			"every file. To resume at Vector's positions, import on its machine after it has "+
			"stopped", name)
		return c.Carried, nil
	}
	var all checkpoints
	if err := json.Unmarshal(text, &all); err != nil {
		return c.Carried, c.Unusable(name, err)
	}
	if all.Version != "1" {
		return c.Carried, c.Unusable(name, fmt.Errorf("its version is %q, want 1", all.Version))
	}
	err = s.marks(c, all)
	c.Note("checkpoints", migrate.Differs, "%d files resume at their positions in %s, which has "+
		"%d; data that Vector delivered after its last checkpoint is repeated", len(c.Marks), name,
		len(all.Checkpoints))
	return c.Carried, err
}

// The method marks adds each file that has a position to the new checkpoint. If several files have
// equal first lines, Vector considers them the same file, and the position can belong to any of
// them. Then each of them is added as an unread file.
func (s stored) marks(c *migrate.Carrier, all checkpoints) error {
	type file struct {
		path  string
		at    int64
		sum   uint64
		bySum bool
	}
	var found []file
	equal := make(map[uint64]int) // number of files by checksum
	bySum, byInode := all.index()
	err := c.Matching(s.include, s.exclude, func(path string, f vfs.File) error {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if at, ok := byInode[[2]uint64{info.Dev, info.Ino}]; ok {
			found = append(found, file{path: path, at: at})
			return nil
		}
		sum, ok, err := s.find(f, bySum)
		if ok {
			found = append(found, file{path, bySum[sum], sum, true})
			equal[sum]++
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, f := range found {
		label := filepath.ToSlash(f.path)
		if f.bySum && equal[f.sum] > 1 {
			c.Note(label, migrate.Differs, "begins like another file, and Vector's position can "+
				"belong to either: it is read from its beginning, and may repeat data that "+
				"Vector delivered")
			f.at = 0
		}
		dir, err := c.Files.OpenDir(filepath.Dir(f.path))
		if err != nil {
			return err
		}
		err = c.Mark(dir, filepath.Base(f.path), label, f.at, false)
		if err = errors.Join(err, dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (all checkpoints) index() (bySum map[uint64]int64, byInode map[[2]uint64]int64) {
	bySum, byInode = make(map[uint64]int64), make(map[[2]uint64]int64)
	for _, k := range all.Checkpoints {
		f := k.Fingerprint
		for _, sum := range []*uint64{f.Lines, f.Line, f.Checksum} {
			if sum != nil {
				bySum[*sum] = k.Position
			}
		}
		if f.DevInode != [2]uint64{} {
			byInode[f.DevInode] = k.Position
		}
	}
	return bySum, byInode
}

// find returns the checksum of f's first lines. ok is false if no checkpoint has it.
func (s stored) find(f vfs.File, bySum map[uint64]int64) (sum uint64, ok bool, err error) {
	head := make([]byte, s.maxLine)
	n, err := f.ReadAt(head, int64(s.skip))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, false, err
	}
	head = head[:n]
	end, lines := 0, 0
	for end < len(head) && lines < s.lines {
		if head[end] == '\n' {
			lines++
		}
		end++
	}
	if lines < s.lines && n < s.maxLine {
		return 0, false, nil // the file is too short, so Vector has no checkpoint of it
	}
	for _, sum := range []uint64{ecma182(head[:end]), legacy(head[:end], s.maxLine)} {
		if _, ok = bySum[sum]; ok {
			return sum, true, nil
		}
	}
	return 0, false, nil
}

// ecma182 returns the CRC-64/ECMA-182 of data. This checksum has the same polynomial as Go's
// crc64.ECMA, but is not reflected.
func ecma182(data []byte) (sum uint64) {
	const polynomial = 0x42f0e1eba9ea3693
	for _, b := range data {
		sum ^= uint64(b) << 56
		for range 8 {
			if sum>>63 == 1 {
				sum = sum<<1 ^ polynomial
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}

var reflected = crc64.MakeTable(crc64.ECMA)

// legacy returns the checksum that Vector used before version 0.14: the CRC-64/XZ of the first
// lines, padded with zeros to the maximum length of a line.
func legacy(lines []byte, longest int) uint64 {
	padded := make([]byte, longest)
	copy(padded, lines)
	return crc64.Checksum(padded, reflected)
}
