package spooldir

import (
	"fmt"
	"path"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// Reread implements stream.Rereadable. It returns options that read the files again and leave them
// unchanged. Renamed files are found and read. Files that were deleted, or moved to another
// directory, are not found.
func (o *Options) Reread() (stream.Reread, error) {
	again := *o
	again.Finished, again.MoveTo = finishedKeep, ""
	if o.Finished != finishedRename {
		return stream.Reread{Options: &again}, nil
	}
	suffix := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(o.Suffix)
	again.Suffix, again.Include = "", nil
	for _, g := range o.Include {
		again.Include = append(again.Include, g, g+suffix, g+suffix+".[0-9]*")
	}
	if err := again.Validate(); err != nil {
		return stream.Reread{}, fmt.Errorf("spool_dir: %w", err)
	}
	n := names{suffix: o.Suffix}
	return stream.Reread{Options: &again,
		Finished: func(name string) bool { return n.done(path.Base(name)) }}, nil
}
