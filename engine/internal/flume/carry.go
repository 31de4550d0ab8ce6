package flume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/fileid"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Limits of what Flume may have kept.
const (
	maxPositions  = 64 << 20 // bytes of a position file
	maxMarkers    = 1 << 20  // files in a trackerDir
	maxMarkerDeep = 64       // folders beneath each other in it
)

// Progress says where a source kept how far it had come, and what of the new config that is about.
type Progress struct {
	Pipeline string
	Routes   []string

	Positions string // TAILDIR: the position file

	Spool   string // spooldir: the directory
	Tracker string // its trackerDir
	Suffix  string // of finished files, and of the markers in Tracker
	Kept    bool   // trackingPolicy tracker_dir: finished files keep their names, and have an empty marker in Tracker
}

// Carried is what becomes of it: the marks with which each of the routes begins.
type Carried struct {
	Marks []stream.Mark
	Notes []Note
}

// Carry reads what Flume kept, and the files that it is about. Relative paths start at dir. Where
// Flume's word does not fit a file, the file is left without a mark, or with an earlier one, so
// that nothing is lost, and a note says what comes twice.
func (p Progress) Carry(files vfs.FS, dir string) (Carried, error) {
	c := &carrier{Progress: p, files: files, base: dir}
	err := c.taildir()
	if p.Spool != "" {
		err = c.spooldir()
	}
	return c.Carried, err
}

type carrier struct {
	Progress
	Carried
	files vfs.FS
	base  string
}

func (c *carrier) note(key string, w Weight, format string, args ...any) {
	c.Notes = append(c.Notes, Note{Key: c.Pipeline + ": " + key, Weight: w, Text: fmt.Sprintf(format, args...)})
}

func (c *carrier) path(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			name = filepath.Join(home, rest)
		}
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(c.base, name)
	}
	return filepath.Clean(name)
}

// read reads a whole file of Flume's; nil and no error: it is not there.
func (c *carrier) read(name string) ([]byte, error) {
	dir, err := c.files.OpenDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := dir.Open(filepath.Base(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPositions+1))
	if err == nil && len(text) > maxPositions {
		err = fmt.Errorf("%s is larger than %d bytes: it is not Flume's", name, maxPositions)
	}
	return text, err
}

// position is an entry of a TAILDIR source's position file.
type position struct {
	Inode uint64 `json:"inode"`
	Pos   int64  `json:"pos"`
	File  string `json:"file"`
}

// taildir carries over a position file. Flume writes it every writePosInterval, 3 s, and when it
// stops.
func (c *carrier) taildir() error {
	if c.Positions == "" {
		return nil
	}
	name := c.path(c.Positions)
	text, err := c.read(name)
	switch {
	case err != nil:
		return fmt.Errorf("position file: %w", err)
	case text == nil:
		c.note("positionFile", Differs, "%s is not here: every file is read from where start says; import on the agent's machine, "+
			"after it has stopped, to go on where it was", name)
		return nil
	}
	var list []position
	if err := json.Unmarshal(text, &list); err != nil {
		c.note("positionFile", Differs, "%s cannot be read (%v): every file is read from its beginning, what Flume has delivered of them "+
			"comes twice", name, err)
		return nil
	}
	for _, p := range list {
		if err := c.tailed(p); err != nil {
			return err
		}
	}
	c.note("positionFile", Differs, "%d of %d files go on where %s says; what Flume delivered after it wrote that, within "+
		"writePosInterval before a kill, comes twice", len(c.Marks), len(list), name)
	return nil
}

// tailed carries over one file, which may have another name by now.
func (c *carrier) tailed(p position) error {
	full := c.path(p.File)
	dir, err := c.files.OpenDir(filepath.Dir(full))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	base := ""
	if err == nil {
		defer dir.Close()
		if base, err = find(dir, filepath.Base(full), p.Inode); err != nil {
			return err
		}
	}
	if base == "" {
		c.note(p.File, Differs, "%s", "is gone: what Flume had not read of it cannot be had any more")
		return nil
	}
	if base != filepath.Base(full) {
		c.note(p.File, Differs, "is %s by now, and is read on under that name", base)
	}
	label := path.Join(path.Dir(filepath.ToSlash(full)), filepath.Base(full))
	if base != filepath.Base(full) {
		label = path.Join(path.Dir(label), base)
	}
	return c.mark(dir, base, label, p.Pos, false)
}

// find returns under which name of dir an inode is, the one that it had if it may; "": under none.
func find(dir vfs.Dir, name string, inode uint64) (string, error) {
	if info, err := dir.Stat(name); err == nil && info.Ino == inode && info.Mode.IsRegular() {
		return name, nil
	}
	entries, err := dir.Entries(".")
	if err != nil {
		return "", err
	}
	slices.SortFunc(entries, func(a, b vfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		if !e.Type.IsRegular() {
			continue
		}
		if info, err := dir.Stat(e.Name); err == nil && info.Ino == inode {
			return e.Name, nil
		}
	}
	return "", nil
}

// spooldir carries over a directory that Flume was in the middle of.
func (c *carrier) spooldir() error {
	spool := c.path(c.Spool)
	dir, err := c.files.OpenDir(spool)
	if errors.Is(err, fs.ErrNotExist) {
		c.note("spoolDir", Differs, "%s is not here: import on the agent's machine, after it has stopped, to go on where it was", spool)
		return nil
	} else if err != nil {
		return err
	}
	defer dir.Close()
	tracker := filepath.FromSlash(c.Tracker)
	if !filepath.IsAbs(tracker) {
		tracker = filepath.Join(spool, tracker)
	}
	if c.Kept {
		if err := c.markers(dir, tracker, ".", 0); err != nil {
			return err
		}
		c.note("trackerDir", Differs, "%d files that Flume had finished are not read again", len(c.Marks))
	}
	meta := filepath.Join(tracker, ".flumespool-main.meta")
	text, err := c.read(meta)
	if err != nil {
		return fmt.Errorf("position of the file in work: %w", err)
	}
	if text == nil {
		return nil // it was in the middle of none
	}
	file, offset, err := spoolPosition(text)
	if err != nil {
		c.note("trackerDir", Differs, "%s cannot be read (%v): the file that Flume was in the middle of is read from its beginning, "+
			"and what was delivered of it comes twice", meta, err)
		return nil
	}
	rel, err := filepath.Rel(spool, c.path(file))
	if rel = filepath.ToSlash(rel); err != nil || !fs.ValidPath(rel) {
		c.note("trackerDir", Differs, "the file that Flume was in the middle of, %s, is not beneath %s: it is read from its beginning",
			file, spool)
		return nil
	}
	if _, err := dir.Stat(rel); errors.Is(err, fs.ErrNotExist) || offset == 0 {
		return nil // it was finished, or nothing of it was delivered
	}
	before := len(c.Marks)
	if err := c.mark(dir, rel, rel, offset, false); err != nil || len(c.Marks) == before {
		return err
	}
	c.note("trackerDir", Differs, "%s, which Flume was in the middle of, goes on at byte %d; what it delivered and had not noted yet, "+
		"one batch at most, comes twice", rel, c.Marks[before].Watermark.Num)
	return nil
}

// markers carries over the finished files of trackingPolicy tracker_dir: each has an empty file of
// its name and suffix.
func (c *carrier) markers(dir vfs.Dir, tracker, beneath string, depth int) error {
	t, err := c.files.OpenDir(filepath.Join(tracker, filepath.FromSlash(beneath)))
	if errors.Is(err, fs.ErrNotExist) || depth > maxMarkerDeep {
		return nil
	} else if err != nil {
		return err
	}
	defer t.Close()
	entries, err := t.Entries(".")
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b vfs.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		name := path.Join(beneath, e.Name)
		if e.Type.IsDir() {
			if err := c.markers(dir, tracker, name, depth+1); err != nil {
				return err
			}
			continue
		}
		data, ok := strings.CutSuffix(name, c.Suffix)
		if !ok || !e.Type.IsRegular() || len(c.Marks) >= maxMarkers {
			continue
		}
		info, err := dir.Stat(data)
		if err != nil || !info.Mode.IsRegular() {
			continue // it is gone
		}
		if err := c.mark(dir, data, data, info.Size, true); err != nil {
			return err
		}
	}
	return nil
}

// mark makes the mark of a file of which everything before at was delivered. It has to be behind a
// record's end: else it is moved back to the one before.
func (c *carrier) mark(dir vfs.Dir, name, label string, at int64, finished bool) error {
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch {
	case at > info.Size:
		c.note(label, Differs, "has %d bytes, and Flume had read %d: it was rewritten, and is read from its beginning", info.Size, at)
		return nil
	case at <= 0:
		return nil
	}
	if !finished {
		begin, err := lineBefore(f, at)
		if err != nil {
			return err
		}
		if begin < at {
			c.note(label, Differs, "Flume stood at byte %d, in the middle of a line: %d bytes before it come twice", at, at-begin)
		}
		if at = begin; at == 0 {
			return nil
		}
	}
	head := make([]byte, min(info.Size, fileid.MaxHead))
	before := make([]byte, min(at, fileid.MaxBefore))
	if _, err := f.ReadAt(head, 0); err != nil && err != io.EOF {
		return err
	}
	if _, err := f.ReadAt(before, at-int64(len(before))); err != nil && err != io.EOF {
		return err
	}
	seen := fileid.File{Dev: info.Dev, Ino: info.Ino, Size: info.Size, Head: head, ModTime: info.ModTime.UnixNano()}
	if !info.Birth.IsZero() {
		seen.Birth = info.Birth.UnixNano()
	}
	proof := fileid.Proof{}.WithHead(head[:min(int64(len(head)), at)]).WithPlace(at, before)
	if at == info.Size {
		proof.ModTime = seen.ModTime
	}
	c.Marks = append(c.Marks, stream.Mark{
		Part:      stream.Partition{ID: fileid.New(seen, nil).String(), Name: label},
		Watermark: stream.Position{Num: at}, Finished: finished, Note: proof.String(),
	})
	return nil
}

// lineBefore is the last line's end at or before a place, 0 where there is none.
func lineBefore(f vfs.File, at int64) (int64, error) {
	const step = 4096
	var buf [step]byte
	for end := at; end > 0; {
		n := min(end, step)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}
