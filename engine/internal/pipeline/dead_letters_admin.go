package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
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
// own, with the id PARTITION (see deadletter.PartitionOf). dir is the state directory, and boot is
// the result of Boot. Progress in the upper layer (see layeredStore) takes precedence.
func SettledLetters(dir vfs.Dir, boot string) (map[string]bool, error) {
	out, upper := map[string]bool{}, map[string]bool{}
	snap, report, err := checkpoint.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = report.Err() // letters in the damaged part would count as not settled
	}
	if err != nil {
		return nil, err
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

// Letters reads the dead letters of a route from its file. It ends early if ctx is done.
func (e *Engine) Letters(
	ctx context.Context, q admin.LetterQuery,
) (page admin.LetterPage, err error) {
	s := e.find(q.Pipeline, q.Route)
	if s == nil {
		return page, admin.ErrNoRoute
	}
	state, err := e.o.FS.OpenDir(e.cfg.State)
	if err != nil {
		return page, fmt.Errorf("state directory %s: %w", e.cfg.State, err)
	}
	settled, err := SettledLetters(state, e.o.Boot)
	if err = errors.Join(err, state.Close()); err != nil {
		return page, fmt.Errorf("state directory %s: %w", e.cfg.State, err)
	}
	path := LettersPath(s.pipe.cfg, s.cfg)
	entries, err := deadletter.OpenEntries(e.o.FS, path)
	if err != nil {
		return page, err
	}
	defer func() { err = errors.Join(err, entries.Close()) }()
	isSettled := func(id string) bool { return settled[s.key+" "+deadletter.PartitionOf(id)] }
	if page, err = readLetters(ctx, entries, q, isSettled); err != nil {
		return page, fmt.Errorf("dead letters %s: %w", path, err)
	}
	return page, nil
}

func readLetters(
	ctx context.Context, entries *deadletter.Entries, q admin.LetterQuery,
	settled func(id string) bool,
) (page admin.LetterPage, err error) {
	for {
		if ctx.Err() != nil {
			return page, context.Cause(ctx)
		}
		entry, err := entries.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return page, err
		}
		done := settled(entry.ID)
		if !done {
			page.Open++
		}
		if !q.Filter.Takes(entry) || done && !q.Settled {
			continue
		}
		page.Matched++
		page.Entries = append(page.Entries, admin.Letter{Entry: entry, Settled: done})
		if len(page.Entries) >= 2*q.Limit+64 {
			page.Entries = slices.Clone(page.Entries[len(page.Entries)-q.Limit:])
		}
	}
	page.Skipped = entries.Skipped
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
