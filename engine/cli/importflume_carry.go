package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/flume"
	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
)

// carry makes a checkpoint beside the config of what Flume has kept of how far it had come, and
// adds to the notes what is to be said of that. It returns how many files it is about.
func (f importFlags) carry(r *flume.Result) (files int, err error) {
	if len(r.Progress) == 0 {
		return 0, nil
	}
	add := func(p flume.Progress, w flume.Weight, text string) {
		r.Notes = append(r.Notes, flume.Note{Key: p.Pipeline, Weight: w, Text: text})
	}
	defer func() { flume.Sort(r.Notes) }()
	if f.out == "" {
		for _, p := range r.Progress {
			add(p, flume.Differs, "how far Flume had come is carried over with --out only, as a checkpoint beside the config")
		}
		return 0, nil
	}
	folder, err := filepath.Abs(filepath.Dir(f.out))
	if err != nil {
		return 0, fmt.Errorf("import flume: %w", err)
	}
	state := filepath.Join(folder, "state")
	if _, err := os.Lstat(filepath.Join(state, checkpoint.Name)); err == nil {
		for _, p := range r.Progress {
			add(p, flume.Differs, "there is a checkpoint in "+state+" already: how far Flume had come is not carried over into it")
		}
		return 0, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("import flume: %w", err)
	}
	carried := make([]flume.Carried, len(r.Progress))
	for i, p := range r.Progress {
		if carried[i], err = p.Carry(osfs.New(), folder); err != nil {
			return 0, fmt.Errorf("import flume: what Flume kept of source %s: %w", p.Pipeline, err)
		}
		r.Notes = append(r.Notes, carried[i].Notes...)
		files += len(carried[i].Marks)
	}
	if files == 0 {
		return 0, nil
	}
	return files, keepMarks(state, r.Progress, carried)
}

// keepMarks writes the first checkpoint of a state directory.
func keepMarks(state string, progress []flume.Progress, carried []flume.Carried) (err error) {
	dir, err := osfs.New().MakeDir(state, 0o700)
	if err != nil {
		return fmt.Errorf("import flume: state directory: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	lock, err := dir.Lock(pipeline.LockName, fmt.Sprintf("penstock import, process %d", os.Getpid()))
	if err != nil {
		return fmt.Errorf("import flume: state directory %s: %w; stop the run first", state, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	store, _, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for i, p := range progress {
		for _, route := range p.Routes {
			if err := store.Append(p.Pipeline+"/"+route, carried[i].Marks, nil); err != nil {
				return err
			}
		}
	}
	return store.Sync()
}
