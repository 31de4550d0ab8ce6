//penstock:pure

package flume

import (
	"cmp"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// Defaults of Flume that differ from those of penstock.
const (
	spoolSuffix    = ".COMPLETED"
	spoolPollDelay = 500  // ms
	maxLineLength  = 2048 // in characters, for the deserializer LINE
)

// spooldir writes a spool_dir source.
func (c *converter) spooldir(s *part) {
	c.Put(2, "source:")
	c.Put(3, "spool_dir:")
	dir := s.Text("spoolDir")
	if dir == "" {
		c.note(s, "spoolDir", migrate.Lost, "%s", "is missing: set path to the directory")
	}
	c.Put(4, "path: %s", migrate.Quote(dir))
	c.spoolNames(s)
	c.spoolFinished(s)
	if on(s.Text("recursiveDirectorySearch")) {
		c.Put(4, "recursive: true")
	}
	switch order := strings.ToLower(s.Text("consumeOrder")); order {
	case "", "oldest":
	default:
		c.note(s, "consumeOrder", migrate.Differs,
			"%s is not available: the oldest file comes first", order)
	}
	delay := cmp.Or(s.Positive("pollDelay"), spoolPollDelay)
	c.Put(4, "poll_min: %dms", delay)
	if delay > 1000 {
		c.Put(4, "poll_max: %dms", delay)
	}
	c.deserializer(s)
	c.eventHeaders(s)
	c.unneeded(s, unneededOfSpooldir)
}

// unneeded adds notes about options that need no equivalent. The values are the reasons.
func (c *converter) unneeded(s *part, options map[string]string) {
	for key, why := range options {
		c.Note(s.Get(key), migrate.Unneeded, "%s", why)
	}
}

var unneededOfSpooldir = map[string]string{
	"batchSize": "limits a channel's transaction; batch limits the records of one delivery",
	"maxBackoff": "waits for a full channel; penstock stops reading while its memory is full, " +
		"and retry sets the waits of refused batches",
	"backoff":        "see maxBackoff",
	"bufferMaxLines": "is obsolete in Flume, too",
}

// spoolNames writes the options that select files.
func (c *converter) spoolNames(s *part) {
	if pattern := s.Text("includePattern"); pattern != "" && pattern != `^.*$` {
		list, wider, ok := globs(pattern)
		if !ok {
			c.note(s, "includePattern", migrate.Lost,
				"%q cannot be converted to globs: every file is read; add an include", pattern)
		} else {
			c.Put(4, "include: %s", quotes(list))
		}
		if wider {
			c.note(s, "includePattern", migrate.Differs,
				"%q became %s, which may match more names: check them", pattern, quotes(list))
		}
	}
	// Flume reads files that the source spool_dir ignores by default.
	exclude := []string{}
	if pattern := s.Text("ignorePattern"); pattern != "" && pattern != `^$` {
		list, wider, ok := globs(pattern)
		if ok && !wider {
			exclude = list
		} else {
			c.note(s, "ignorePattern", migrate.Lost,
				"%q cannot be converted to globs: no file is excluded; add an exclude", pattern)
		}
	}
	c.Put(4, "exclude: %s", quotes(exclude))
}

// spoolFinished writes the option for the treatment of delivered files.
func (c *converter) spoolFinished(s *part) {
	suffix := spoolSuffix
	if s.Get("fileSuffix") != nil {
		suffix = s.Text("fileSuffix")
	}
	tracked := strings.EqualFold(s.Text("trackingPolicy"), "tracker_dir")
	tracker := cmp.Or(s.Text("trackerDir"), ".flumespool")
	c.stored = append(c.stored, progress{spool: s.Text("spoolDir"), tracker: tracker,
		suffix: suffix, kept: tracked,
		utf16: strings.HasPrefix(strings.ToUpper(s.Text("inputCharset")), "UTF-16")})
	switch {
	case strings.EqualFold(s.Text("deletePolicy"), "immediate"):
		c.Put(4, "finished: delete")
	case tracked:
		c.Put(4, "finished: keep")
		c.note(s, "trackingPolicy", migrate.Differs, "%s",
			"finished files are recorded in the checkpoint. Files that Flume has finished are "+
				"in it if import created it (--out, on the agent's machine). Otherwise move "+
				"them away before the first start")
		return
	default:
		c.Put(4, "finished: rename")
	}
	c.Put(4, "suffix: %s", migrate.Quote(suffix))
	c.note(s, "spoolDir", migrate.Differs, "%s",
		"files that Flume has renamed are skipped. An unfinished file resumes at the position "+
			"in trackerDir if import created the checkpoint (--out, on the agent's machine). "+
			"Otherwise it is delivered from its beginning, and repeats the data that Flume "+
			"has delivered")
}

// deserializer writes the options that split a file into records.
func (c *converter) deserializer(s *part) {
	switch kind := s.Text("deserializer"); strings.ToUpper(kind) {
	case "", "LINE":
		length := s.Positive("deserializer.maxLineLength")
		if length == 0 { // otherwise the older name has no effect, and is reported
			length = cmp.Or(s.Positive("bufferMaxLineLength"), maxLineLength)
		}
		c.Put(4, "max_record: %dB # bytes; Flume counts characters. "+
			"Longer lines are split, as in Flume", length)
		s.Ignore("deserializer.outputCharset")
	default:
		c.note(s, "deserializer", migrate.Lost, "penstock has no %s: files are read line by line",
			kind)
		s.below("deserializer")
	}
	c.charset(s)
}

// charsets maps Flume's names of encodings to those of penstock. UTF-8 is missing, because it is
// the default of both programs.
var charsets = map[string]string{
	"UTF-16": "utf-16", "UTF-16LE": "utf-16le", "UTF-16BE": "utf-16be", "ISO-8859-1": "latin-1",
	"LATIN1":       "latin-1",
	"WINDOWS-1252": "windows-1252", "CP1252": "windows-1252",
}

// charset writes the encoding of files.
func (c *converter) charset(s *part) {
	set := strings.ToUpper(s.Text("inputCharset"))
	switch name := charsets[set]; {
	case name != "":
		c.Put(4, "encoding: %s", name)
	case set != "" && set != "UTF-8" && set != "UTF8" && set != "US-ASCII":
		c.note(s, "inputCharset", migrate.Lost, "%s is not decoded: the bytes are "+
			"delivered unchanged",
			s.Text("inputCharset"))
	}
	switch strings.ToUpper(s.Text("decodeErrorPolicy")) {
	case "REPLACE":
		c.Put(4, "decode_error: replace")
	case "IGNORE":
		c.Put(4, "decode_error: drop")
	default:
		c.note(s, "decodeErrorPolicy", migrate.Differs, "%s",
			"invalid UTF-8 does not stop the source as FAIL does: raw bodies and files get the "+
				"bytes unchanged, JSON gets U+FFFD. Other choices are decode_error: fail, which "+
				"stops at the file, and dead_letter")
	}
}

// eventHeaders adds notes about data that Flume adds to the headers of events.
func (c *converter) eventHeaders(s *part) {
	for _, key := range []string{"fileHeader", "basenameHeader", "byteOffsetHeader"} {
		if on(s.Text(key)) {
			c.note(s, key, migrate.Differs, "%s",
				"records have no headers; expressions have the file as meta.file and the offset "+
					"as meta.offset, for example set: {file: meta.file}")
		}
	}
	s.Ignore("fileHeaderKey", "basenameHeaderKey")
}

var unneededOfTaildir = map[string]string{
	"idleTimeout":      "files are closed and opened again as needed",
	"writePosInterval": "the option checkpoint sets when positions are written",
	"batchSize": "limits a channel's transaction; " +
		"batch limits the records of one delivery",
	"maxBatchCount":         "files are read concurrently, and none can starve another",
	"backoffSleepIncrement": "idle files are checked at increasing intervals here, too",
	"maxBackoffSleep":       "idle files are checked at increasing intervals here, too",
	"cachePatternMatching":  "names are matched when a directory changes",
}

// taildir writes a tail source.
func (c *converter) taildir(s *part) {
	c.Put(2, "source:")
	c.Put(3, "tail:")
	var include []string
	for group := range strings.FieldsSeq(s.Text("filegroups")) {
		key := "filegroups." + group
		pattern := s.Text(key)
		if pattern == "" {
			c.note(s, key, migrate.Lost, "%s", "is missing: the group has no files")
			continue
		}
		// The directory is a literal path. The last element is a regular expression.
		dir, name := path.Split(pattern)
		list, wider, ok := globs(name)
		if !ok {
			c.note(s, key, migrate.Lost, "%q cannot be converted to globs; add an include", name)
			continue
		}
		if wider {
			c.note(s, key, migrate.Differs, "%q became %s, which may match more names: check them",
				name, quotes(list))
		}
		for _, g := range list {
			include = append(include, literalGlob([]rune(dir))+g)
		}
	}
	if len(include) == 0 {
		c.Broken++
	}
	c.Put(4, "include: %s", quotes(include))
	c.Put(4, "exclude: []")
	if on(s.Text("skipToEnd")) {
		c.Put(4, "start: end")
	} else {
		c.Put(4, "start: beginning")
	}
	file := "~/.flume/taildir_position.json"
	if s.Get("positionFile") != nil {
		file = s.Text("positionFile")
	}
	c.stored = append(c.stored, progress{positions: file})
	c.eventHeaders(s)
	for _, key := range s.below("headers") {
		c.note(s, key, migrate.Differs, "%s", "records have no headers; to add a field, "+
			"use set: {name: \"'value'\"} after a where over meta.file")
	}
	c.unneeded(s, unneededOfTaildir)
}

// on reports whether a Java boolean is true.
func on(value string) bool { return strings.EqualFold(value, "true") }

// processors writes processors for the interceptors that have an equivalent.
func (c *converter) processors(s *part) {
	var list []string
	for name := range strings.FieldsSeq(s.Text("interceptors")) {
		p := "interceptors." + name + "."
		kind := s.Text(p + "type")
		switch {
		case strings.EqualFold(kind, "regex_filter") ||
			strings.HasSuffix(kind, "RegexFilteringInterceptor$Builder"):
			pattern := s.Text(p + "regex")
			if _, err := regexp.Compile(pattern); err != nil {
				c.note(s, p+"regex", migrate.Lost,
					"%q is not a regular expression of Go (%v): every record passes",
					pattern, err)
				break
			}
			not := ""
			if on(s.Text(p + "excludeEvents")) {
				not = "not "
			}
			list = append(list, not+"(message matches "+strconv.Quote(pattern)+")")
		default:
			c.note(s, p+"type", migrate.Lost, "penstock has no interceptor %q. Records have no "+
				"headers; use a processor to change bodies (docs/processors.md)", kind)
		}
		s.below(strings.TrimSuffix(p, "."))
	}
	if len(list) == 0 {
		return
	}
	c.Put(2, "processors:")
	for _, expr := range list {
		c.Put(3, "- where: %s", migrate.Quote(expr))
	}
}
