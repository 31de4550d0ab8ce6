package tail

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the source.
type Options struct {
	Include  []string `yaml:"include" required:"true" path:"true" doc:"globs of files to follow, by path; ** matches any number of folders"`
	Exclude  []string `yaml:"exclude" path:"glob" doc:"globs of files to skip, by name; with a slash: by path"`
	Start    string   `yaml:"start" enum:"beginning,end" doc:"where to start in files that exist when the route runs for the first time"`
	Symlinks string   `yaml:"symlinks" enum:"refuse,follow" doc:"handling of symlinks to files"`

	PartialWait   time.Duration `yaml:"partial_wait" doc:"how long the last line waits for its end; 0: usually until the file is complete"`
	GoneWait      time.Duration `yaml:"gone_wait" doc:"time without changes after which a deleted file counts as complete"`
	CopyWait      time.Duration `yaml:"copy_wait" doc:"how long a file that equals another one is held back: it may be a copy"`
	DeletedMax    stream.Size   `yaml:"deleted_max" doc:"disk space that deleted files may occupy until they are read"`
	DeletedBeyond string        `yaml:"deleted_beyond" enum:"keep,drop,stop" doc:"beyond deleted_max: read on, drop the largest, or stop"`

	follow.SourceOptions
}

// Source returns the component tail.
func Source() stream.Component {
	return stream.Component{
		Role: stream.SourceRole,
		Name: "tail",
		Options: func() any {
			return &Options{
				Exclude: []string{"*.gz", "*.bz2", "*.xz", "*.zst", "*~"}, Start: "beginning", Symlinks: "refuse",
				GoneWait:   time.Minute,
				CopyWait:   10 * time.Second,
				DeletedMax: 1 << 30, DeletedBeyond: "keep",
				SourceOptions: follow.DefaultOptions(512),
			}
		},
		New: func(options any, h stream.Host) (any, error) { return newSource(*options.(*Options), h) },
	}
}

// ReadsFile implements stream.FileReader.
func (o *Options) ReadsFile(file string) bool {
	full := absolute(file)
	return !follow.MatchesGlob(absoluteGlobs(o.Exclude), full) &&
		slices.ContainsFunc(o.Include, func(pattern string) bool {
			return matches(absolute(pattern), full)
		})
}

// Validate returns an error for invalid options.
func (o *Options) Validate() error {
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	switch {
	case len(o.Include) == 0:
		return stream.OptionErrorf("include", "is missing: name the files to follow, as globs")
	case o.DeletedMax < 0:
		return stream.OptionErrorf("deleted_max", "is %v, want 0B or more", o.DeletedMax)
	}
	for _, d := range []struct {
		key  string
		wait time.Duration
	}{{"partial_wait", o.PartialWait}, {"gone_wait", o.GoneWait}, {"copy_wait", o.CopyWait}} {
		if d.wait < 0 {
			return stream.OptionErrorf(d.key, "is %v, want 0 or more", d.wait)
		}
	}
	if err := o.SourceOptions.Validate(); err != nil {
		return err
	}
	return o.validateGlobs()
}

func (o *Options) validateGlobs() error {
	if err := follow.CheckGlobs("include", slashed(o.Include)); err != nil {
		return err
	}
	for i, g := range slashed(o.Include) {
		if last := path.Base(g); last == "**" || last == "." || last == ".." || last == "/" {
			return stream.OptionErrorf(fmt.Sprintf("include[%d]", i), "%q names no files; write "+
				"%s to have every file there", g, path.Join(g, "*"))
		}
	}
	if err := follow.CheckGlobs("exclude", slashed(o.Exclude)); err != nil {
		return err
	}
	return follow.CheckExcluded(slashed(o.Include), o.Exclude)
}

// absoluteGlobs returns the globs of the option exclude, with absolute paths.
func absoluteGlobs(exclude []string) []string {
	out := slashed(exclude)
	for i, g := range out {
		if strings.Contains(g, "/") && !strings.HasPrefix(g, "**/") {
			out[i] = absolute(g)
		}
	}
	return out
}

// absolute returns an absolute path with forward slashes. If the working directory is unknown, it
// returns the path as it is.
func absolute(file string) string {
	if full, err := filepath.Abs(file); err == nil {
		file = full
	}
	return filepath.ToSlash(file)
}

func slashed(paths []string) (out []string) {
	for _, p := range paths {
		out = append(out, filepath.ToSlash(p))
	}
	return out
}
