package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/vfs"
)

// carry makes a checkpoint for the new config from the read positions of the program that is
// replaced. It adds notes about the positions to r. files is the number of files that resume at a
// position or were finished. unreadable is the error of files without a position because they could
// not be read. carry writes no checkpoint and returns 0 in three cases: --out is not set, a
// checkpoint exists already, or there are no positions to import.
func (f *importFlags) carry(r *migrate.Result) (files int, unreadable, err error) {
	if len(r.Progress) == 0 {
		return 0, nil, nil
	}
	notImported := func(why string) {
		for _, p := range r.Progress {
			n := migrate.Note{Key: p.Pipeline, Kind: migrate.Differs, Text: why}
			r.Notes = append(r.Notes, n)
		}
	}
	defer func() { migrate.Sort(r.Notes) }()
	if f.out == "" {
		notImported("the stored positions are imported with --out only, into a checkpoint beside " +
			"the config")
		return 0, nil, nil
	}
	folder, err := filepath.Abs(filepath.Dir(f.out))
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", f.name(), err)
	}
	state := filepath.Join(folder, "state")
	if _, err := os.Lstat(filepath.Join(state, checkpoint.Name)); err == nil {
		notImported("the checkpoint in " + state + " already exists: the stored positions are " +
			"not imported")
		return 0, nil, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, nil, fmt.Errorf("%s: %w", f.name(), err)
	}
	carried, begun := make([]migrate.Carried, len(r.Progress)), 0
	for i, p := range r.Progress {
		if carried[i], err = p.Carry(osfs.New(), folder); err != nil {
			return 0, nil, f.withoutPositions(fmt.Errorf("stored positions of %s: %w", p.Pipeline, err))
		}
		r.Notes = append(r.Notes, carried[i].Notes...)
		files += len(carried[i].Marks)
		begun += len(carried[i].Begun)
		unreadable = errors.Join(unreadable, carried[i].Unreadable)
	}
	written := f.out
	if files+begun > 0 {
		kept, err := keepMarks(osfs.New(), state, r.Progress, carried)
		written += " and " + filepath.Join(state, checkpoint.Name)
		if err != nil {
			return 0, nil, errors.Join(f.keepError(kept, written, err), unreadable)
		}
	}
	if unreadable != nil {
		unreadable = fmt.Errorf("%s: files that could not be read have no position in the "+
			"checkpoint, so the option start applies to them; to import their positions, delete "+
			"%s, and import as a user that can read them: %w", f.name(), written, unreadable)
	}
	return files, unreadable, nil
}

// withoutPositions returns the error of an import that has written the config, and no positions.
func (f *importFlags) withoutPositions(err error) error {
	return fmt.Errorf("%s: %s was written, but a run with it would not resume at the stored "+
		"positions: correct the error, remove %s and import again: %w", f.name(), f.out, f.out, err)
}

// keepError returns the message for an error of keepMarks. written has the names of the config and
// the checkpoint.
func (f *importFlags) keepError(kept bool, written string, err error) error {
	if !kept {
		return f.withoutPositions(err)
	}
	return fmt.Errorf("%s: the stored positions were imported, but may not survive a power loss: "+
		"correct the error, delete %s, and import again: %w", f.name(), written, err)
}

// unfinished is the folder in the state directory in which a checkpoint is made.
const unfinished = "import"

// keepMarks writes the first checkpoint of a state directory, from the carried positions. The
// checkpoint is moved into the state directory when it is complete. So after a crash or an error,
// the next import finds no checkpoint, and imports the positions again.
//
// kept reports whether the checkpoint is in the state directory. It may be true after an error:
// then the checkpoint is complete, but may not survive a power loss.
func keepMarks(files vfs.FS, state string, progress []migrate.Progress,
	carried []migrate.Carried) (kept bool, err error) {
	dir, err := files.MakeDir(state, 0o700)
	if err != nil {
		return false, err
	}
	err = withLock(dir, state, "import", func() (err error) {
		made, err := dir.MakeDir(unfinished, 0o700)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, made.Close()) }()
		err = made.Remove(checkpoint.Name) // of an import that was killed
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		err = withCheckpoint(made, func(store *checkpoint.Store) error {
			return appendMarks(store, progress, carried)
		})
		if err != nil {
			return err
		}
		if err := made.RenameNew(checkpoint.Name, dir, checkpoint.Name); err != nil {
			return err
		}
		kept = true
		_ = dir.Remove(unfinished) // the next import uses the folder if it is still there
		return dir.Sync()
	})
	return kept, err
}

// appendMarks saves the carried positions of all routes.
func appendMarks(
	store *checkpoint.Store, progress []migrate.Progress, carried []migrate.Carried,
) error {
	for i, p := range progress {
		marks := append(carried[i].Marks, carried[i].Begun...)
		for _, route := range p.Routes {
			if err := store.Append(p.Pipeline+"/"+route, marks, nil); err != nil {
				return err
			}
		}
	}
	return store.Sync()
}
