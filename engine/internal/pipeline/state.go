package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/supervise"
	"github.com/penstock-io/penstock/vfs"
)

// state opens the engine's checkpoint log. Some errors, such as a failed sync, make the open log
// fail permanently. The next route that starts then opens the log again and uses its contents on
// disk, as after a crash.
type state struct {
	dir  vfs.Dir
	name string // path of the state directory, for messages
	boot string // identifies the present run of the operating system
	log  *slog.Logger

	mu   sync.Mutex // guards the fields below; held while the log is opened
	open *checkpoint.Store
	lost error // first error returned by present
}

// store returns the checkpoint log for a route that is starting. It opens the log if it is not
// open or has failed.
func (s *state) store() (*checkpoint.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		failed := s.open.Failed()
		if failed == nil {
			return s.open, nil
		}
		s.log.Warn("the checkpoint is reopened", "because", failed)
		_ = s.open.Close() // an error here would only repeat the known failure
		s.open = nil
	}
	store, report, err := checkpoint.Open(s.dir, checkpoint.Options{Warn: func(err error) {
		s.log.Warn("checkpoint", "error", err)
	}})
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", s.name, err)
	}
	level := slog.LevelInfo
	if report.Damage != "" {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, report.String())
	s.open = store
	return store, nil
}

// SourceDir returns the directory of a pipeline's source, relative to the state directory.
func SourceDir(pipeline string) string { return "sources/" + fileName(pipeline) }

// makeDir opens a directory below the state directory, and creates it if it is missing.
func (s *state) makeDir(name string) (vfs.Dir, error) {
	dir, err := s.dir.MakeDir(name, 0o700)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", s.name, err)
	}
	return dir, nil
}

// sinkDir creates the directory of a route's sink if it is missing, and returns its path.
func (s *state) sinkDir(pipeline, route string) (string, error) {
	dir, err := s.makeDir(SinkDir(pipeline, route))
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.name, filepath.FromSlash(SinkDir(pipeline, route)))
	return path, dir.Close()
}

// SinkDir returns the directory of a route's sink, relative to the state directory.
func SinkDir(pipeline, route string) string {
	return "sinks/" + fileName(pipeline) + "." + fileName(route)
}

// WaitingDir returns the directory for a route's waiting batches, relative to the state directory.
func WaitingDir(pipeline, route string) string {
	return "waiting/" + fileName(pipeline) + "." + fileName(route)
}

// maxFileName is the maximum length of the result of fileName, in bytes. Two such names with a dot
// between them (PIPELINE.ROUTE) are shorter than the limit of file systems, usually 255 bytes.
const maxFileName = 100

// fileName returns a file name for the name of a pipeline or route. All bytes except a-z, 0-9, -
// and _ are escaped as %XX. Names that a config accepts need no escapes. Embedders may use other
// names. If the result is longer than maxFileName, its end is replaced by a hash. Different names
// have different file names.
func fileName(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() == 0 {
		return "%"
	}
	if b.Len() > maxFileName {
		sum := sha256.Sum256([]byte(name))
		return b.String()[:maxFileName-33] + "~" + hex.EncodeToString(sum[:16])
	}
	return b.String()
}

// present returns an error if the state directory has been deleted or replaced since it was opened,
// or if the checkpoint in it has been deleted. Further writes would go to deleted files and be
// lost. The error is final, because only a restart of the process creates a new checkpoint.
func (s *state) present(files vfs.FS) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil {
		return s.lost
	}
	gone := func(err error) error {
		s.lost = supervise.Final(fmt.Errorf("state directory %s was deleted or replaced while penstock "+
			"runs, so progress cannot be saved; "+
			"restore it, or start again from what is left: %w", s.name, err))
		return s.lost
	}
	if _, err := s.dir.Stat(checkpoint.Name); errors.Is(err, fs.ErrNotExist) {
		return gone(err)
	}
	now, err := files.OpenDir(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return gone(err)
	} else if err != nil {
		return nil // for example too many open files; the checkpoint is not affected
	}
	defer func() { _ = now.Close() }() // nothing was written with it
	a, errA := s.dir.Stat(".")
	b, errB := now.Stat(".")
	if errA == nil && errB == nil && (a.Ino != b.Ino || a.Dev != b.Dev) {
		return gone(errors.New("there is another directory in its place"))
	}
	return nil
}

func (s *state) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return nil
	}
	return s.open.Close()
}
