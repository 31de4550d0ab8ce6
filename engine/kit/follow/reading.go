package follow

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/penstock-io/penstock/engine/kit/framing"
	"github.com/penstock-io/penstock/engine/kit/lines"
	"github.com/penstock-io/penstock/engine/kit/origin"
	"github.com/penstock-io/penstock/stream"
)

// SourceOptions contains the config keys that all sources of files have. It is embedded in the
// options of each source.
type SourceOptions struct {
	MaxRecord    stream.Size     `yaml:"max_record" doc:"maximum size of a record; see long_record"`
	Framing      framing.Options `yaml:"framing" doc:"records that are not lines"`
	Encoding     string          `yaml:"encoding" enum:"utf-8,utf-16le,utf-16be,utf-16,latin-1,windows-1252" doc:"encoding of the files"`
	DecodeError  string          `yaml:"decode_error" enum:"keep,replace,drop,dead_letter,fail" doc:"handling of invalid bytes"`
	Compression  string          `yaml:"compression" enum:"auto,none,gzip,zstd" doc:"auto: detected from the first bytes of a file"`
	MaxExpansion int             `yaml:"max_expansion" doc:"maximum ratio of decompressed to compressed bytes beyond 64 MiB; 0: no limit"`
	LongRecord   string          `yaml:"long_record" enum:"cut,dead_letter" doc:"cut into pieces, or dead-letter the beginning"`

	PollMin time.Duration `yaml:"poll_min" doc:"time until an idle source lists its files again; it doubles up to poll_max"`
	PollMax time.Duration `yaml:"poll_max" doc:"longest time between two listings of an idle source, unless they take long"`

	Identity string `yaml:"identity" enum:"auto,content" doc:"auto: files are recognized by inode and content; content: also by name"`

	OpenFiles int            `yaml:"open_files" doc:"maximum number of open files of the source"`
	Forget    time.Duration  `yaml:"forget" doc:"time after which the position of a missing file expires; 0: never"`
	Meta      origin.Options `yaml:"meta" doc:"fields with the origin of a record"`
}

// DefaultOptions reads lines of at most 1 MiB in UTF-8, of files that may be compressed. It holds
// at most openFiles files open.
func DefaultOptions(openFiles int) SourceOptions {
	return SourceOptions{
		MaxRecord: 1 << 20, Framing: framing.Defaults(), Encoding: "utf-8", DecodeError: "keep",
		Compression: "auto", MaxExpansion: 1000, LongRecord: "cut",
		PollMin: 100 * time.Millisecond, PollMax: time.Second,
		Identity: "auto", OpenFiles: openFiles, Forget: time.Hour,
	}
}

// Shape implements stream.Shaper. A record has its text, and the fields that the option meta adds.
func (o *SourceOptions) Shape(in stream.Schema) (stream.Schema, error) { return o.Meta.Shape(in), nil }

// Validate rejects invalid options with a *stream.OptionError. stream.CheckEnums must have returned
// nil.
func (o *SourceOptions) Validate() error {
	switch {
	case o.Forget < 0:
		return stream.OptionErrorf("forget", "is %v, want 0 or more", o.Forget)
	case o.OpenFiles < 1:
		return stream.OptionErrorf("open_files", "is %d, want 1 or more", o.OpenFiles)
	case o.PollMin <= 0:
		return stream.OptionErrorf("poll_min", "is %v, want more than 0", o.PollMin)
	case o.PollMax < o.PollMin:
		return stream.OptionErrorf("poll_max", "is %v, less than poll_min (%v)", o.PollMax,
			o.PollMin)
	case o.MaxRecord < 1 || o.MaxRecord > math.MaxInt32/2:
		return stream.OptionErrorf("max_record", "is %v, want 1B to 1GiB", o.MaxRecord)
	case o.MaxExpansion < 0:
		return stream.OptionErrorf("max_expansion", "is %d, want 0 or more", o.MaxExpansion)
	}
	if err := o.Framing.Validate(o.LongRecord); err != nil {
		return err
	}
	if err := o.text().Validate(o.Framing, o.LongRecord); err != nil {
		return err
	}
	return o.Meta.Validate("meta")
}

// Into sets those fields of the catalogue's options (to) that these keys determine. Validate must
// have returned nil.
func (o *SourceOptions) Into(to *Options) (err error) {
	to.PollMin, to.PollMax, to.OpenFiles, to.Forget = o.PollMin, o.PollMax, o.OpenFiles, o.Forget
	to.Identity = identityOptions[o.Identity]
	to.Rules = lines.Rules{MaxRecord: int(o.MaxRecord), DeadLetter: o.LongRecord == "dead_letter"}
	to.Packed = compressions[o.Compression]
	to.Packed.MaxExpansion = o.MaxExpansion
	to.Rules.Framing, to.ByHead, err = o.Framing.In(o.text(), int(o.MaxRecord))
	return err
}

func (o *SourceOptions) text() framing.Text {
	return framing.Text{Encoding: o.Encoding, DecodeError: o.DecodeError}
}

// alternatives matches a part of a glob such as {a,b}, which path.Match compares literally.
var alternatives = regexp.MustCompile(`\{[^}]*,[^}]*\}`)

// CheckGlobs returns an error for the first glob of a key that is empty or malformed, or that its
// author has probably misunderstood.
func CheckGlobs(key string, globs []string) error {
	for i, g := range globs {
		problem := ""
		switch _, err := path.Match(g, ""); {
		case err != nil || g == "":
			problem = "is not a glob; brackets must close, and it may not be empty"
		case strings.Contains(g, "[!"):
			problem = "has [!, which does not negate a class; write [^"
		case alternatives.MatchString(g):
			problem = "has alternatives in braces; write a glob for each of them"
		case strings.HasSuffix(g, "/"):
			problem = "matches no file; write " + g + "* for the files in the folder"
		}
		if problem != "" {
			return stream.OptionErrorf(fmt.Sprintf("%s[%d]", key, i), "%q %s", g, problem)
		}
	}
	return nil
}

// CheckExcluded returns an error for the first glob of include that matches only excluded files. It
// checks only the globs of exclude that have no slash and no wildcard other than *. Such a glob
// excludes all files of another glob if it matches the text of that glob. Example: *.gz matches
// app*.gz.
func CheckExcluded(include, exclude []string) error {
	for i, in := range include {
		for _, ex := range exclude {
			if !strings.ContainsAny(ex, `/?[]\`) && Match(ex, path.Base(in)) {
				return stream.OptionErrorf(fmt.Sprintf("include[%d]", i), "%q matches only files "+
					"that exclude skips; write exclude without %q, for example exclude: []", in, ex)
			}
		}
	}
	return nil
}

// MatchesGlob reports whether one of globs matches a file. A glob with a slash is compared with the
// path of the file, any other with its name.
func MatchesGlob(globs []string, file string) bool {
	base := path.Base(file)
	return slices.ContainsFunc(globs, func(g string) bool {
		if strings.Contains(g, "/") {
			return matchPath(strings.Split(g, "/"), strings.Split(file, "/"))
		}
		return Match(g, base)
	})
}

// matchPath reports whether a glob matches a path. Both are split at slashes. The part ** matches
// any number of parts.
func matchPath(glob, file []string) bool {
	switch {
	case len(glob) == 0:
		return len(file) == 0
	case glob[0] == "**" && matchPath(glob[1:], file):
		return true
	case len(file) == 0:
		return false
	case glob[0] == "**":
		return matchPath(glob, file[1:])
	}
	return Match(glob[0], file[0]) && matchPath(glob[1:], file[1:])
}

// Match is path.Match with a faster case for patterns such as "*.log". Each listing calls it several
// times for each file. A malformed pattern matches nothing.
func Match(pattern, name string) bool {
	if end, ok := strings.CutPrefix(pattern, "*"); ok && !strings.ContainsAny(end, `*?[\`) &&
		!strings.Contains(name, "/") {
		return strings.HasSuffix(name, end)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
