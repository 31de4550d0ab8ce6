//penstock:pure

package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/vfs"
)

// Builder builds the converted config with its pipelines, and collects notes on settings that have
// no exact equivalent.
type Builder struct {
	Writer   // of the config
	Names    // of pipelines
	Progress []Progress
	Broken   int // number of sources and sinks that were not converted
	notes    []Note
}

// NewBuilder returns a Builder for a config that is converted from another one. command is the
// subcommand of `penstock import`.
func NewBuilder(from, command string) *Builder {
	b := &Builder{}
	b.Put(0, "# Converted from %s by `penstock import %s`. Read its notes before the first start.",
		from, command)
	b.Put(0, "state: ./state")
	b.Put(0, "pipelines:")
	return b
}

// Note adds a note about a setting. It does nothing if the setting is missing.
func (b *Builder) Note(v *Value, k Kind, format string, args ...any) {
	if v != nil {
		b.notes = append(b.notes, Note{Line: v.Line, Key: v.Key, Kind: k,
			Text: fmt.Sprintf(format, args...)})
	}
}

// NoteUnread adds a note for each setting in v that the conversion has not read.
func (b *Builder) NoteUnread(v *Value) {
	for _, f := range v.Unread() {
		b.Note(f, Lost, "has no equivalent in penstock, and is not converted")
	}
}

// NoteLost adds a note that a setting is lost, and ignores all settings below it. It does nothing
// if the setting is missing.
func (b *Builder) NoteLost(v *Value, format string, args ...any) {
	b.Note(v, Lost, format, args...)
	v.IgnoreAll()
}

// NoteLostInput adds a note that a whole input is lost: the config has no pipeline for it. The
// result is then not runnable, so that nobody takes the config for complete.
func (b *Builder) NoteLostInput(v *Value, format string, args ...any) {
	b.NoteLost(v, format, args...)
	b.Broken++
}

// NoteVerified adds a note that a setting is lost because it disables the verification of
// certificates. Penstock always verifies them.
func (b *Builder) NoteVerified(v *Value) {
	b.Note(v, Lost, "certificates are always verified: set tls.ca to the authority")
}

// Pipeline is a pipeline with a source that follows files.
type Pipeline struct {
	Name             string
	Include, Exclude []string
	FromEnd          bool     // begin at the end of the files (start: end)
	Symlinks         bool     // follow symlinks
	Extra            []string // further lines of YAML of the source
	Processors       []string // first processors of every route, as lines of a YAML list
	Routes           []Route
	Carry            func(files vfs.FS, dir string) (Carried, error) // nil: nothing stored
}

// Route is a route of a Pipeline. If Sink.Kind is "", the route gets no sink in the new config, and
// `penstock validate` reports an error.
type Route struct {
	Name       string
	Processors []string
	Sink       Sink
	Missing    string // kind of the missing sink
}

// Add writes a pipeline to the config.
func (b *Builder) Add(p Pipeline) {
	name := b.Unique(p.Name)
	w := &b.Writer
	w.Put(1, "%s:", name)
	w.Put(2, "source:")
	w.Put(3, "tail:")
	w.Put(4, "include: %s", quoteGlobs(p.Include))
	w.Put(4, "exclude: %s", quoteGlobs(p.Exclude))
	w.Put(4, "start: %s", map[bool]string{true: "end", false: "beginning"}[p.FromEnd])
	if p.Symlinks {
		w.Put(4, "symlinks: follow")
	}
	for _, line := range p.Extra {
		w.Put(4, "%s", line)
	}
	var routes []string
	switch len(p.Routes) {
	case 0:
		b.Broken++
		b.processors(p.Processors, 2)
		w.Put(2, "# no sink: write one")
	case 1:
		routes = []string{"main"}
		b.route(p, p.Routes[0], 2)
	default:
		var names Names
		w.Put(2, "routes:")
		for _, r := range p.Routes {
			routes = append(routes, names.Unique(r.Name))
			w.Put(3, "%s:", routes[len(routes)-1])
			b.route(p, r, 4)
		}
	}
	if p.Carry != nil {
		b.Progress = append(b.Progress, Progress{Pipeline: name, Routes: routes, Carry: p.Carry})
	}
}

// quoteGlobs converts globs to penstock's syntax and returns them as a YAML list. Example: [!ab]
// becomes [^ab], and dir/** becomes dir/**/*, because ** matches only folders.
func quoteGlobs(globs []string) string {
	globs = slices.Clone(globs)
	for i, g := range globs {
		globs[i] = strings.ReplaceAll(g, "[!", "[^")
		if strings.HasSuffix(g, "/**") {
			globs[i] += "/*"
		}
	}
	return QuoteList(globs)
}

func (b *Builder) processors(list []string, depth int) {
	if len(list) == 0 {
		return
	}
	b.Put(depth, "processors:")
	for _, line := range list {
		b.Put(depth+1, "- %s", line)
	}
}

func (b *Builder) route(p Pipeline, r Route, depth int) {
	b.processors(append(slices.Clone(p.Processors), r.Processors...), depth)
	if r.Sink.Kind == "" {
		b.Broken++
		b.Put(depth, "# no sink: add one. The original had %s", r.Missing)
		return
	}
	r.Sink.Write(&b.Writer, depth)
}

// Result returns the config and the notes. top is the original config. For each setting in it that
// the conversion has not read, Result adds a note of kind Lost.
func (b *Builder) Result(name string, top *Value) Result {
	b.NoteUnread(top)
	if len(b.taken) == 0 {
		b.Broken++
	}
	b.notes = distinct(b.notes)
	Sort(b.notes)
	return Result{Name: name, Config: b.String(), Notes: b.notes, Progress: b.Progress,
		Runnable: b.Broken == 0}
}

// distinct returns notes without repetitions. For example, an output that is converted once for
// each of its inputs gets its notes several times.
func distinct(notes []Note) []Note {
	seen := make(map[Note]bool)
	return slices.DeleteFunc(notes, func(n Note) bool {
		was := seen[n]
		seen[n] = true
		return was
	})
}

// StoredPosition is the position up to which the other program has read a file.
type StoredPosition struct {
	File   string // last known path
	Inode  uint64 // 0 if unknown
	Offset int64
	// Same reports whether f is the file of the position, by comparing a fingerprint of its
	// content. If Same is nil, only the inode is compared.
	Same func(f vfs.File) (bool, error)
}
