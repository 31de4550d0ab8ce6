package flume

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/vfs"
)

// Limits on a tracker directory.
const (
	maxMarkers    = 1 << 20 // files in a tracker directory
	maxMarkerDeep = 64      // nesting of a tracker directory
)

// progress has the paths at which a Flume source stores its read positions.
type progress struct {
	pipeline string // name of the new pipeline

	positions string // TAILDIR: path of the position file

	spool   string // spooldir: path of the directory
	tracker string // spooldir: path of trackerDir
	suffix  string // suffix of finished files, and of marker files in tracker
	// kept means that trackingPolicy is tracker_dir. A finished file then keeps its name, and an
	// empty marker file in the directory trackerDir shows that it is finished.
	kept  bool
	utf16 bool // encoding of the files
}

// carry converts the stored progress. See migrate.Progress.
func (p progress) carry(files vfs.FS, dir string) (migrate.Carried, error) {
	c := &carrier{progress: p}
	c.Files, c.Base, c.Program, c.Prefix = files, dir, "Flume", p.pipeline+": "
	c.UTF16 = p.utf16
	err := c.taildir()
	if p.spool != "" {
		err = c.spooldir()
	}
	return c.Carried, err
}

type carrier struct {
	progress
	migrate.Carrier
}

// position is an entry of the position file of a TAILDIR source: the read position of one file.
type position struct {
	Inode uint64 `json:"inode"`
	Pos   int64  `json:"pos"`
	File  string `json:"file"`
}

// taildir converts a position file to a first checkpoint. Flume writes this file at intervals of
// writePosInterval, by default 3 s, and when Flume ends. So after a crash of Flume, the positions
// are up to one interval old.
func (c *carrier) taildir() error {
	if c.positions == "" {
		return nil
	}
	name := c.Path(c.positions)
	text, err := c.Read(name)
	switch {
	case err != nil:
		return fmt.Errorf("position file: %w", err)
	case text == nil:
		c.Note("positionFile", migrate.Differs, "%s does not exist: the option start applies to "+
			"every file; to resume at the agent's positions, import on its machine after it has "+
			"stopped", name)
		return nil
	}
	var list []position
	if err := json.Unmarshal(text, &list); err != nil {
		return c.Unusable(name, err)
	}
	for _, p := range list {
		at := migrate.StoredPosition{File: p.File, Inode: p.Inode, Offset: p.Pos}
		if err := c.Resume(at); err != nil {
			return err
		}
	}
	c.Note("positionFile", migrate.Differs, "%d of %d files resume at their positions in %s; "+
		"data that Flume delivered after it wrote this file (within writePosInterval of a kill) "+
		"is repeated", len(c.Marks), len(list), name)
	return nil
}

// spooldir converts the progress of a spooling directory to a first checkpoint.
func (c *carrier) spooldir() error {
	spool := c.Path(c.spool)
	dir, err := c.Files.OpenDir(spool)
	if errors.Is(err, fs.ErrNotExist) {
		c.Note("spoolDir", migrate.Differs, "%s does not exist: to resume at the agent's "+
			"positions, import on its machine after it has stopped", spool)
		return nil
	} else if err != nil {
		return err
	}
	defer dir.Close()
	tracker := filepath.FromSlash(c.tracker)
	if !filepath.IsAbs(tracker) {
		tracker = filepath.Join(spool, tracker)
	}
	if c.kept {
		if err := c.markers(dir, tracker, ".", 0); err != nil {
			return err
		}
		c.Note("trackerDir", migrate.Differs, "%d files that Flume had finished are not read again",
			len(c.Marks))
		if len(c.Marks) >= maxMarkers {
			c.Note("trackerDir", migrate.Differs, "further finished files are read again")
		}
	}
	meta := filepath.Join(tracker, ".flumespool-main.meta")
	text, err := c.Read(meta)
	if err != nil {
		return fmt.Errorf("position of the unfinished file: %w", err)
	}
	if text == nil {
		return nil // no file was partly read
	}
	file, offset, err := spoolPosition(text)
	if err != nil {
		c.Note("trackerDir", migrate.Differs, "%s cannot be read (%v): the unfinished file "+
			"is read from its beginning, and repeats the data that Flume has delivered", meta, err)
		return nil
	}
	rel, err := filepath.Rel(spool, c.Path(file))
	if rel = filepath.ToSlash(rel); err != nil || !fs.ValidPath(rel) {
		c.Note("trackerDir", migrate.Differs, "the unfinished file %s is not in %s: "+
			"it is read from its beginning",
			file, spool)
		return nil
	}
	if _, err := dir.Stat(rel); errors.Is(err, fs.ErrNotExist) || offset == 0 {
		return nil // the file was finished, or none of it was delivered
	}
	before := len(c.Marks)
	if err := c.Mark(dir, rel, rel, offset, false); err != nil || len(c.Marks) == before {
		return err
	}
	c.Note("trackerDir", migrate.Differs, "the unfinished file %s resumes at byte %d; at most "+
		"one batch is repeated, which Flume delivered before it wrote the position", rel,
		c.Marks[before].Watermark.Num)
	return nil
}

// markers adds the finished files to the checkpoint, if trackingPolicy is tracker_dir. For each
// finished file, trackerDir contains an empty marker file. The marker's name is the name of the
// finished file with c.suffix appended.
func (c *carrier) markers(dir vfs.Dir, tracker, beneath string, depth int) error {
	if depth > maxMarkerDeep {
		c.Note("trackerDir", migrate.Differs, "%s is nested more than %d directories deep: the "+
			"finished files beneath it are read again", beneath, maxMarkerDeep)
		return nil
	}
	t, err := c.Files.OpenDir(filepath.Join(tracker, filepath.FromSlash(beneath)))
	if errors.Is(err, fs.ErrNotExist) {
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
		data, ok := strings.CutSuffix(name, c.suffix)
		if !ok || !e.Type.IsRegular() || len(c.Marks) >= maxMarkers {
			continue
		}
		info, err := dir.Stat(data)
		if err != nil || !info.Mode.IsRegular() {
			continue // the file no longer exists
		}
		if err := c.Mark(dir, data, data, info.Size, true); err != nil {
			return err
		}
	}
	return nil
}
