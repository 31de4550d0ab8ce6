package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/vfs"
)

// SettledLetters returns the set of dead letters that a replay or discard has settled. Its keys
// have the form "PIPELINE/ROUTE PARTITION". In the checkpoint, each letter is a partition of its
// own, with the id PARTITION (see deadletter.PartitionOf). state is the path of the state
// directory, which may not exist, and boot is the result of Boot. Progress in the upper layer (see
// layeredStore) takes precedence.
func SettledLetters(files vfs.FS, state, boot string) (map[string]bool, error) {
	out, upper := map[string]bool{}, map[string]bool{}
	snap, err := readWhole(files, state)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", state, err)
	}
	for _, r := range snap.Routes {
		route, of, _ := strings.Cut(r.Route, checkpoint.BootMark)
		if of != "" && of != boot {
			continue
		}
		layer := out
		if of != "" {
			layer = upper
		}
		for _, m := range r.Marks {
			if deadletter.IsPartition(m.Part.ID) {
				layer[route+" "+m.Part.ID] = m.Watermark.Num > 0
			}
		}
	}
	maps.Copy(out, upper)
	return out, nil
}

// readWhole reads the checkpoint in a state directory. It returns an error if the checkpoint is
// damaged, because letters in the damaged part would count as not settled.
func readWhole(files vfs.FS, state string) (*checkpoint.Snapshot, error) {
	dir, err := files.OpenDir(state)
	if err != nil {
		return nil, err
	}
	snap, report, err := checkpoint.Read(dir)
	if err == nil {
		err = report.Err()
	}
	return snap, errors.Join(err, dir.Close())
}

// Letters reads the dead letters of a route from its file. It ends early if ctx is done.
func (e *Engine) Letters(
	ctx context.Context, q admin.LetterQuery,
) (page admin.LetterPage, err error) {
	s := e.find(q.Pipeline, q.Route)
	if s == nil {
		return page, admin.ErrNoRoute
	}
	settled, err := SettledLetters(e.o.FS, e.cfg.State, e.o.Boot)
	if err != nil {
		return page, err
	}
	path := LettersPath(s.pipe.cfg, s.cfg)
	page.Skipped, err = deadletter.Each(e.o.FS, path, func(entry *deadletter.Entry) error {
		done := settled[s.key+" "+deadletter.PartitionOf(entry.ID)]
		if !done {
			page.Open++
		}
		if q.Filter.Takes(entry) && (!done || q.Settled) {
			page.Matched++
			page.Entries = append(page.Entries, admin.Letter{Entry: entry, Settled: done})
			if len(page.Entries) >= 2*q.Limit+64 {
				page.Entries = slices.Clone(page.Entries[len(page.Entries)-q.Limit:])
			}
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return page, err
	}
	if extra := len(page.Entries) - q.Limit; extra > 0 {
		page.Entries = page.Entries[extra:]
	}
	slices.Reverse(page.Entries)
	return page, nil
}

// find returns a route, or nil if there is no such route.
func (e *Engine) find(pipeline, route string) *slot {
	for s := range e.slots() {
		if s.pipe.name == pipeline && s.cfg.Name == route {
			return s
		}
	}
	return nil
}

// plan returns the running configuration as YAML, with defaults and without secrets.
func (e *Engine) plan() []byte {
	c := *e.cfg
	c.Pipelines = nil
	for _, p := range e.pipelines() {
		pc := p.cfg
		pc.Routes = nil
		for _, s := range p.routes() {
			pc.Routes = append(pc.Routes, s.cfg)
		}
		c.Pipelines = append(c.Pipelines, pc)
	}
	return c.Plan()
}
