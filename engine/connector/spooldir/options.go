package spooldir

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// The values of the option finished.
const (
	finishedRename = "rename"
	finishedDelete = "delete"
	finishedMove   = "move"
	finishedKeep   = "keep"
)

// quietPeriod is the default of the option quiet_period.
const quietPeriod = time.Second

// Options are the options of the source.
type Options struct {
	Path      string   `yaml:"path" required:"true" path:"true" alone:"true" doc:"the directory; it has to exist"`
	Include   []string `yaml:"include" doc:"globs of the files to read, by name; with a slash: by path beneath the directory"`
	Exclude   []string `yaml:"exclude" doc:"globs of files to skip; names with a leading dot are always skipped"`
	Recursive bool     `yaml:"recursive" doc:"read subdirectories, too"`
	Order     string   `yaml:"order" enum:"oldest,name" doc:"which file comes first: by last change, then name; or by name"`
	Finished  string   `yaml:"finished" enum:"rename,delete,move,keep" doc:"action on a delivered file"`
	Suffix    string   `yaml:"suffix" doc:"suffix of renamed files (.done, or .done.1 if taken); files with it are skipped"`
	MoveTo    string   `yaml:"move_to" path:"true" doc:"directory for finished files, on the same file system"`

	QuietPeriod time.Duration `yaml:"quiet_period" doc:"time without changes after which a file counts as complete"`
	Settle      time.Duration `yaml:"settle" doc:"former name of quiet_period"` // 0: not given

	Watch time.Duration `yaml:"watch" doc:"how long a finished file is checked for new data, at growing intervals"`

	follow.SourceOptions
}

// Source returns the component spool_dir.
func Source() stream.Component {
	return stream.Component{
		Role: stream.SourceRole,
		Name: "spool_dir",
		Options: func() any {
			return &Options{
				Include: []string{"*"}, Exclude: []string{"*.tmp", "*.part", "*~"},
				Order: "oldest", Finished: finishedRename, Suffix: ".done", QuietPeriod: quietPeriod,
				Watch: time.Hour, SourceOptions: follow.DefaultOptions(64),
			}
		},
		New: func(options any, h stream.Host) (any, error) {
			return newSource(*options.(*Options), h)
		},
	}
}

// quietPeriod returns the option quiet_period, which may be given under its former name.
func (o *Options) quietPeriod() time.Duration { return cmp.Or(o.Settle, o.QuietPeriod) }

// Notices implements stream.Noticer. It points out the former name of quiet_period.
func (o *Options) Notices() []error {
	if o.Settle == 0 {
		return nil
	}
	return []error{stream.OptionErrorf("settle", "is the former name of quiet_period")}
}

// ReadsFile implements stream.FileReader.
func (o *Options) ReadsFile(file string) bool {
	folder, err := filepath.Abs(o.Path)
	if err != nil {
		return false
	}
	if file, err = filepath.Abs(file); err != nil {
		return false
	}
	name, err := filepath.Rel(folder, file)
	if name = filepath.ToSlash(name); err != nil || strings.HasPrefix(name, "../") ||
		strings.Contains(name, "/") && !o.Recursive {
		return false
	}
	return names{o.Include, o.Exclude, o.Suffix}.wanted(name)
}

// Validate returns an error for invalid options.
func (o *Options) Validate() error {
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	switch {
	case o.Path == "":
		return stream.OptionErrorf("path", "is missing: name the directory to read")
	case len(o.Include) == 0:
		return stream.OptionErrorf("include",
			`is empty, so that nothing would be read; leave it out or write ["*"]`)
	case o.Settle != 0 && o.QuietPeriod != quietPeriod:
		return stream.OptionErrorf("settle", "is the former name of quiet_period, and both are "+
			"given; remove one of them")
	case o.quietPeriod() <= 0:
		return stream.OptionErrorf("quiet_period", "is %v, want more than 0: a file that is still "+
			"written cannot be told from a finished one without", o.quietPeriod())
	case o.Watch < 0:
		return stream.OptionErrorf("watch", "is %v, want 0 or more", o.Watch)
	}
	if err := o.SourceOptions.Validate(); err != nil {
		return err
	}
	for _, g := range []struct {
		key   string
		globs []string
	}{{"include", o.Include}, {"exclude", o.Exclude}} {
		if err := follow.CheckGlobs(g.key, g.globs); err != nil {
			return err
		}
		for i, glob := range g.globs {
			if below := "/" + glob; path.Clean(below) != below {
				return stream.OptionErrorf(fmt.Sprintf("%s[%d]", g.key, i),
					"%q is not a path beneath the directory, such as sub/*.log", glob)
			}
		}
	}
	if err := follow.CheckExcluded(o.Include, o.Exclude); err != nil {
		return err
	}
	return o.validateFinished()
}

func (o *Options) validateFinished() error {
	switch o.Finished {
	case finishedRename:
		if o.Suffix == "" {
			return stream.OptionErrorf("suffix", "is empty, so that a renamed file would be read "+
				"again; write .done, or finished: keep")
		}
	case finishedMove:
		if o.MoveTo == "" {
			return stream.OptionErrorf("move_to", "is missing: finished: move needs the "+
				"directory to move to")
		}
		rel, err := filepath.Rel(o.Path, o.MoveTo)
		inside := err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
		if inside && (rel == "." || o.Recursive) {
			return stream.OptionErrorf("move_to", "%q lies in the directory that is read, so "+
				"that moved files would be read again", o.MoveTo)
		}
	}
	if o.MoveTo != "" && o.Finished != finishedMove {
		return stream.OptionErrorf("move_to", "is set, but finished is %q; write finished: move",
			o.Finished)
	}
	for i, glob := range o.Include {
		if o.Suffix != "" && strings.HasSuffix(glob, o.Suffix) {
			return stream.OptionErrorf(fmt.Sprintf("include[%d]", i), "%q matches only files that "+
				"end with suffix (%s), which are never read; change one of them", glob, o.Suffix)
		}
	}
	if strings.ContainsAny(o.Suffix, `/\`) {
		return stream.OptionErrorf("suffix", "is %q, want it without slashes: it is added to the "+
			"name", o.Suffix)
	}
	return nil
}
