package spooldir

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/framing"
)

// What may become of a finished file.
const (
	finishedRename = "rename"
	finishedDelete = "delete"
	finishedMove   = "move"
	finishedKeep   = "keep"
)

// Options of a spool_dir.
type Options struct {
	Path         string          `yaml:"path" required:"true" path:"true" alone:"true" doc:"the directory; it has to exist"`
	Include      []string        `yaml:"include" doc:"globs of the files to read, by name; with a slash: by path beneath the directory"`
	Exclude      []string        `yaml:"exclude" doc:"globs of files to leave alone; names with a leading dot always are"`
	Recursive    bool            `yaml:"recursive" doc:"read subdirectories, too"`
	Order        string          `yaml:"order" enum:"oldest,name" doc:"which file comes first: by last change, then name; or by name"`
	Finished     string          `yaml:"finished" enum:"rename,delete,move,keep" doc:"what becomes of a file that is delivered"`
	Suffix       string          `yaml:"suffix" doc:"of finished files (.done, or .done.1 where taken); they are never read"`
	MoveTo       string          `yaml:"move_to" path:"true" doc:"where finished files are moved to; on the same file system"`
	Settle       time.Duration   `yaml:"settle" doc:"a file counts as finished only when it has been quiet that long"`
	MaxRecord    penstock.Size   `yaml:"max_record" doc:"a longer record is treated as long_record says"`
	Framing      framing.Options `yaml:"framing" doc:"records that are not lines"`
	Encoding     string          `yaml:"encoding" enum:"utf-8,utf-16le,utf-16be,utf-16,latin-1,windows-1252" doc:"of the files"`
	DecodeError  string          `yaml:"decode_error" enum:"keep,replace,drop,dead_letter,fail" doc:"bytes that are no text"`
	Compression  string          `yaml:"compression" enum:"auto,none,gzip,zstd" doc:"of the files; auto: as the first bytes of each say"`
	MaxExpansion int             `yaml:"max_expansion" doc:"bytes that a compressed one may become, beyond 64 MiB; 0: any number"`
	LongRecord   string          `yaml:"long_record" enum:"cut,dead_letter" doc:"pieces, or a dead letter of its beginning"`
	PollMin      time.Duration   `yaml:"poll_min" doc:"how soon an idle directory is listed again at first; the wait doubles"`
	PollMax      time.Duration   `yaml:"poll_max" doc:"how soon an idle directory is listed again at the latest"`
	Watch        time.Duration   `yaml:"watch" doc:"how long a finished file is looked at again, ever more rarely"`
	OpenFiles    int             `yaml:"open_files" doc:"files that are held open while they are written, at most"`
	Forget       time.Duration   `yaml:"forget" doc:"the mark of a finished file is dropped when the file has been gone so long; 0: never"`
}

// Source is the component spool_dir.
func Source() penstock.Component {
	return penstock.Component{
		Role: penstock.SourceRole,
		Name: "spool_dir",
		Options: func() any {
			return &Options{
				Include: []string{"*"}, Exclude: []string{"*.tmp", "*.part", "*~"},
				Order: "oldest", Finished: finishedRename, Suffix: ".done", Settle: time.Second,
				Framing: framing.Defaults(), Encoding: "utf-8", DecodeError: "keep", Compression: "auto",
				MaxExpansion: 1000, MaxRecord: 1 << 20, LongRecord: "cut",
				PollMin: 100 * time.Millisecond, PollMax: time.Second, Watch: time.Hour, OpenFiles: 64,
				Forget: time.Hour,
			}
		},
		New: func(options any, h penstock.Host) (any, error) {
			s, err := newSource(*options.(*Options), h)
			if err == nil && s.o.Finished == finishedKeep {
				return keeping{s}, nil
			}
			return s, err
		},
	}
}

// Validate refuses what cannot work.
func (o *Options) Validate() error {
	wrong := func(key, format string, args ...any) error {
		return &penstock.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case o.Path == "":
		return wrong("path", "is missing: name the directory to read")
	case len(o.Include) == 0:
		return wrong("include", `is empty, so that nothing would be read; leave it out or write ["*"]`)
	case o.Order != "oldest" && o.Order != "name":
		return wrong("order", "is %q, want oldest or name", o.Order)
	case o.LongRecord != "cut" && o.LongRecord != "dead_letter":
		return wrong("long_record", "is %q, want cut or dead_letter", o.LongRecord)
	case o.MaxRecord < 1 || o.MaxRecord > math.MaxInt32/2:
		return wrong("max_record", "is %v, want 1B to 1GiB", o.MaxRecord)
	case o.Settle <= 0:
		return wrong("settle", "is %v, want more than 0: a file that is still written cannot be told from a finished one without", o.Settle)
	case o.PollMin <= 0:
		return wrong("poll_min", "is %v, want more than 0", o.PollMin)
	case o.PollMax < o.PollMin:
		return wrong("poll_max", "is %v, less than poll_min (%v)", o.PollMax, o.PollMin)
	case o.Watch < 0:
		return wrong("watch", "is %v, want 0 or more", o.Watch)
	case o.Forget < 0:
		return wrong("forget", "is %v, want 0 or more", o.Forget)
	case o.OpenFiles < 1:
		return wrong("open_files", "is %d, want 1 or more", o.OpenFiles)
	}
	for i, g := range o.Include {
		if _, err := path.Match(g, ""); err != nil || g == "" {
			return wrong(fmt.Sprintf("include[%d]", i), "%q is not a glob; brackets must close, and it may not be empty", g)
		}
	}
	for i, g := range o.Exclude {
		if _, err := path.Match(g, ""); err != nil || g == "" {
			return wrong(fmt.Sprintf("exclude[%d]", i), "%q is not a glob; brackets must close, and it may not be empty", g)
		}
	}
	if err := o.Framing.Validate(o.LongRecord); err != nil {
		return err
	}
	if err := o.text().Validate(o.Framing, o.LongRecord); err != nil {
		return err
	}
	if _, err := follow.PackedAs(o.Compression, o.MaxExpansion); err != nil {
		return err
	}
	return o.validateFinished(wrong)
}

func (o *Options) validateFinished(wrong func(key, format string, args ...any) error) error {
	switch o.Finished {
	case finishedRename:
		if o.Suffix == "" {
			return wrong("suffix", "is empty, so that a renamed file would be read again; write .done, or finished: keep")
		}
	case finishedMove:
		if o.MoveTo == "" {
			return wrong("move_to", "is missing: finished: move needs the directory to move to")
		}
		rel, err := filepath.Rel(o.Path, o.MoveTo)
		inside := err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
		if inside && (rel == "." || o.Recursive) {
			return wrong("move_to", "%q lies in the directory that is read, so that moved files would be read again", o.MoveTo)
		}
	case finishedDelete, finishedKeep:
	default:
		return wrong("finished", "is %q, want rename, delete, move or keep", o.Finished)
	}
	if o.MoveTo != "" && o.Finished != finishedMove {
		return wrong("move_to", "is set, but finished is %q; write finished: move", o.Finished)
	}
	if strings.ContainsAny(o.Suffix, `/\`) {
		return wrong("suffix", "is %q, want it without slashes: it is added to the name", o.Suffix)
	}
	return nil
}

func (o *Options) text() framing.Text {
	return framing.Text{Encoding: o.Encoding, DecodeError: o.DecodeError}
}
