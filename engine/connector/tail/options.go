package tail

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/engine/kit/framing"
)

// Options of a tail.
type Options struct {
	Include       []string        `yaml:"include" required:"true" path:"true" doc:"globs of files to follow, by path; ** is any folders"`
	Exclude       []string        `yaml:"exclude" doc:"globs of files to leave alone, by name; with a slash: by path"`
	Start         string          `yaml:"start" enum:"beginning,end" doc:"where files are begun that are there at the very first start"`
	Symlinks      string          `yaml:"symlinks" enum:"refuse,follow" doc:"what becomes of symlinks to files"`
	MaxRecord     penstock.Size   `yaml:"max_record" doc:"a longer record is treated as long_record says"`
	Framing       framing.Options `yaml:"framing" doc:"records that are not lines"`
	Encoding      string          `yaml:"encoding" enum:"utf-8,utf-16le,utf-16be,utf-16,latin-1,windows-1252" doc:"of the files"`
	DecodeError   string          `yaml:"decode_error" enum:"keep,replace,drop,dead_letter,fail" doc:"bytes that are no text"`
	Compression   string          `yaml:"compression" enum:"auto,none,gzip,zstd" doc:"of the files; auto: as the first bytes of each say"`
	MaxExpansion  int             `yaml:"max_expansion" doc:"bytes that a compressed one may become, beyond 64 MiB; 0: any number"`
	LongRecord    string          `yaml:"long_record" enum:"cut,dead_letter" doc:"pieces, or a dead letter of its beginning"`
	PartialWait   time.Duration   `yaml:"partial_wait" doc:"a last line without end is a record after so long without change; 0: never"`
	GoneWait      time.Duration   `yaml:"gone_wait" doc:"a file that lost its name is closed after so long without change"`
	CopyWait      time.Duration   `yaml:"copy_wait" doc:"how long a file that equals another one waits: it may be a rotation's copy"`
	DeletedMax    penstock.Size   `yaml:"deleted_max" doc:"bytes on the disk that deleted files may hold until they are read"`
	DeletedBeyond string          `yaml:"deleted_beyond" enum:"keep,drop,stop" doc:"if more: say so, give up the largest, or stop"`
	PollMin       time.Duration   `yaml:"poll_min" doc:"how soon idle files are looked at again at first; the wait doubles"`
	PollMax       time.Duration   `yaml:"poll_max" doc:"how soon idle files are looked at again at the latest"`
	OpenFiles     int             `yaml:"open_files" doc:"files that are held open at once, at most"`
	Forget        time.Duration   `yaml:"forget" doc:"the mark of a file is dropped when it has been gone so long; 0: never"`
}

// Source is the component tail.
func Source() penstock.Component {
	return penstock.Component{
		Role: penstock.SourceRole,
		Name: "tail",
		Options: func() any {
			return &Options{
				Exclude: []string{"*.gz", "*.bz2", "*.xz", "*.zst", "*~"}, Start: "beginning", Symlinks: "refuse",
				Framing:  framing.Defaults(),
				Encoding: "utf-8", DecodeError: "keep", Compression: "auto",
				MaxExpansion: 1000, MaxRecord: 1 << 20, LongRecord: "cut", GoneWait: time.Minute, CopyWait: 10 * time.Second,
				DeletedMax: 1 << 30, DeletedBeyond: "keep",
				PollMin: 100 * time.Millisecond, PollMax: time.Second, OpenFiles: 512, Forget: time.Hour,
			}
		},
		New: func(options any, h penstock.Host) (any, error) { return newSource(*options.(*Options), h) },
	}
}

// Validate refuses what cannot work.
func (o *Options) Validate() error {
	wrong := func(key, format string, args ...any) error {
		return &penstock.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case len(o.Include) == 0:
		return wrong("include", "is missing: name the files to follow, as globs")
	case !slices.Contains([]string{"beginning", "end"}, o.Start):
		return wrong("start", "is %q, want beginning or end", o.Start)
	case !slices.Contains([]string{"refuse", "follow"}, o.Symlinks):
		return wrong("symlinks", "is %q, want refuse or follow", o.Symlinks)
	case !slices.Contains([]string{"cut", "dead_letter"}, o.LongRecord):
		return wrong("long_record", "is %q, want cut or dead_letter", o.LongRecord)
	case beyond[o.DeletedBeyond] == nil:
		return wrong("deleted_beyond", "is %q, want keep, drop or stop", o.DeletedBeyond)
	case o.MaxRecord < 1 || o.MaxRecord > math.MaxInt32/2:
		return wrong("max_record", "is %v, want 1B to 1GiB", o.MaxRecord)
	case o.DeletedMax < 0:
		return wrong("deleted_max", "is %v, want 0B or more", o.DeletedMax)
	case o.PollMin <= 0:
		return wrong("poll_min", "is %v, want more than 0", o.PollMin)
	case o.PollMax < o.PollMin:
		return wrong("poll_max", "is %v, less than poll_min (%v)", o.PollMax, o.PollMin)
	case o.OpenFiles < 1:
		return wrong("open_files", "is %d, want 1 or more", o.OpenFiles)
	}
	for key, d := range map[string]time.Duration{
		"partial_wait": o.PartialWait, "gone_wait": o.GoneWait, "copy_wait": o.CopyWait, "forget": o.Forget,
	} {
		if d < 0 {
			return wrong(key, "is %v, want 0 or more", d)
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
	return o.validateGlobs(wrong)
}

func (o *Options) validateGlobs(wrong func(key, format string, args ...any) error) error {
	for i, g := range o.Include {
		key := fmt.Sprintf("include[%d]", i)
		g = filepath.ToSlash(g)
		if _, err := path.Match(g, ""); err != nil || g == "" {
			return wrong(key, "%q is not a glob; brackets must close, and it may not be empty", g)
		}
		if last := path.Base(g); last == "**" || last == "." || last == ".." || last == "/" {
			return wrong(key, "%q names no files; write %s to have every file there", g, path.Join(g, "*"))
		}
	}
	for i, g := range o.Exclude {
		if _, err := path.Match(g, ""); err != nil || g == "" {
			return wrong(fmt.Sprintf("exclude[%d]", i), "%q is not a glob; brackets must close, and it may not be empty", g)
		}
	}
	return nil
}

func (o *Options) text() framing.Text {
	return framing.Text{Encoding: o.Encoding, DecodeError: o.DecodeError}
}
