//penstock:pure

package flume

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// Flume's defaults that differ from those of penstock.
const (
	spoolSuffix    = ".COMPLETED"
	spoolPollDelay = 500  // ms
	maxLineLength  = 2048 // in characters, for the deserializer LINE
)

// spooldir writes a spool_dir source.
func (c *converter) spooldir(s *part) {
	c.put(2, "source:")
	c.put(3, "spool_dir:")
	dir := s.get("spoolDir")
	if dir == "" {
		c.note(s, "spoolDir", migrate.Lost, "%s", "is missing: name the directory as path")
	}
	c.put(4, "path: %s", quote(dir))
	c.spoolNames(s)
	c.spoolFinished(s)
	if on(s.get("recursiveDirectorySearch")) {
		c.put(4, "recursive: true")
	}
	switch order := strings.ToLower(s.get("consumeOrder")); order {
	case "", "oldest":
	default:
		c.note(s, "consumeOrder", migrate.Differs,
			"%s does not exist here: the oldest file comes first", order)
	}
	delay := spoolPollDelay
	if n, err := strconv.Atoi(s.get("pollDelay")); err == nil && n > 0 {
		delay = n
	}
	c.put(4, "poll_min: %dms", delay)
	if delay > 1000 {
		c.put(4, "poll_max: %dms", delay)
	}
	c.deserializer(s)
	c.eventHeaders(s)
	for _, key := range []string{"batchSize", "maxBackoff", "backoff", "bufferMaxLines"} {
		if s.has(key) {
			c.note(s, key, migrate.Needless, "%s", map[string]string{
				"batchSize": "counts events of a channel's transaction; " +
					"here a batch is what goes to a worker at once (batch)",
				"maxBackoff": "waits for a channel that is full; " +
					"here reading waits until there is room, and what a receiver " +
					"refuses waits as retry says",
				"backoff":        "as maxBackoff",
				"bufferMaxLines": "is obsolete in Flume, too",
			}[key])
		}
	}
}

// spoolNames writes the options that select files.
func (c *converter) spoolNames(s *part) {
	if pattern := s.get("includePattern"); pattern != "" && pattern != `^.*$` {
		list, wider, ok := globs(pattern)
		switch {
		case !ok:
			c.note(s, "includePattern", migrate.Lost,
				"%q is no glob, and cannot be made one: every file is read; write include yourself",
				pattern)
		default:
			if wider {
				c.note(s, "includePattern", migrate.Differs,
					"%q became %s, which match more names: look at them", pattern, quotes(list))
			}
			c.put(4, "include: %s", quotes(list))
		}
	}
	// Flume reads files that spool_dir ignores by default.
	exclude := []string{}
	if pattern := s.get("ignorePattern"); pattern != "" && pattern != `^$` {
		list, wider, ok := globs(pattern)
		switch {
		case !ok || wider:
			c.note(s, "ignorePattern", migrate.Lost,
				"%q is no glob, and cannot be made one: nothing is left out; "+
					"write exclude yourself", pattern)
		default:
			exclude = list
		}
	}
	c.put(4, "exclude: %s", quotes(exclude))
}

// spoolFinished writes the treatment of delivered files.
func (c *converter) spoolFinished(s *part) {
	suffix := spoolSuffix
	if s.has("fileSuffix") {
		suffix = s.get("fileSuffix")
	}
	tracked := strings.EqualFold(s.get("trackingPolicy"), "tracker_dir")
	tracker := ".flumespool"
	if s.get("trackerDir") != "" {
		tracker = s.get("trackerDir")
	}
	c.progress = append(c.progress, progress{spool: s.get("spoolDir"), tracker: tracker,
		suffix: suffix, kept: tracked})
	switch {
	case strings.EqualFold(s.get("deletePolicy"), "immediate"):
		c.put(4, "finished: delete")
	case tracked:
		c.put(4, "finished: keep")
		c.note(s, "trackingPolicy", migrate.Differs, "%s",
			"the checkpoint remembers what is delivered; files that Flume had done before "+
				"are in it where import has made one (--out, on the agent's machine); "+
				"else move them away before the first start")
		return
	default:
		c.put(4, "finished: rename")
	}
	c.put(4, "suffix: %s", quote(suffix))
	c.note(s, "spoolDir", migrate.Differs, "%s",
		"files that Flume has renamed are skipped; "+
			"the one that it was in the middle of goes on "+
			"where trackerDir says, where import has made a checkpoint (--out, on the agent's "+
			"machine); else it is delivered from its "+
			"beginning, and what Flume had delivered of it comes twice")
}

// deserializer writes the options that split a file into records.
func (c *converter) deserializer(s *part) {
	switch kind := s.get("deserializer"); strings.ToUpper(kind) {
	case "", "LINE":
		length := maxLineLength
		if n, err := strconv.Atoi(s.get("deserializer.maxLineLength")); err == nil && n > 0 {
			length = n
		} else if n, err := strconv.Atoi(s.get("bufferMaxLineLength")); err == nil && n > 0 {
			length = n
		}
		c.put(4, "max_record: %dB # bytes, where Flume counts characters; "+
			"longer lines are cut into pieces, as there", length)
		s.has("deserializer.outputCharset")
	default:
		c.note(
			s,
			"deserializer",
			migrate.Lost,
			"%s does not exist here: files are read line by line",
			kind,
		)
		s.below("deserializer")
	}
	c.charset(s)
}

// charsets maps encodings to their names in penstock; UTF-8 is the default of both.
var charsets = map[string]string{
	"UTF-16": "utf-16", "UTF-16LE": "utf-16le", "UTF-16BE": "utf-16be", "ISO-8859-1": "latin-1",
	"LATIN1":       "latin-1",
	"WINDOWS-1252": "windows-1252", "CP1252": "windows-1252",
}

// charset writes the encoding of files.
func (c *converter) charset(s *part) {
	set := strings.ToUpper(s.get("inputCharset"))
	switch name := charsets[set]; {
	case name != "":
		c.put(4, "encoding: %s", name)
	case set != "" && set != "UTF-8" && set != "UTF8" && set != "US-ASCII":
		c.note(s, "inputCharset", migrate.Lost, "%s is not decoded: the bytes go on as they are",
			s.get("inputCharset"))
	}
	s.has("inputCharset")
	switch strings.ToUpper(s.get("decodeErrorPolicy")) {
	case "REPLACE":
		c.put(4, "decode_error: replace")
	case "IGNORE":
		c.put(4, "decode_error: drop")
	default:
		c.note(s, "decodeErrorPolicy", migrate.Differs, "%s",
			"bytes that are no UTF-8 go on as they are to raw bodies and files, and as "+
				"U+FFFD into JSON; the source does not stop at them, as FAIL does (decode_error: "+
				"fail stops the file, dead_letter "+
				"buries the record)")
	}
	s.has("decodeErrorPolicy")
}

// eventHeaders adds notes about the data that Flume stores in headers.
func (c *converter) eventHeaders(s *part) {
	for _, key := range []string{"fileHeader", "basenameHeader", "byteOffsetHeader"} {
		if on(s.get(key)) {
			c.note(s, key, migrate.Differs, "%s",
				"records have no headers; the file and the place in it are meta.file and "+
					"meta.offset in "+
					"expressions, such as set: {file: meta.file}")
		}
	}
	s.has("fileHeaderKey")
	s.has("basenameHeaderKey")
}

// needlessOfTaildir are options of TAILDIR without an equivalent, and the reasons.
var needlessOfTaildir = map[string]string{
	"idleTimeout":      "files are closed and opened again as needed",
	"writePosInterval": "the checkpoint is written as checkpoint says",
	"batchSize": "counts events of a channel's transaction; " +
		"here a batch is what goes to a worker at once (batch)",
	"maxBatchCount": "the files are read side by side, none can starve another",
	"backoffSleepIncrement": "an idle file is " +
		"looked at ever more rarely here, too",
	"maxBackoffSleep": "an idle file is looked at ever more rarely here, too",
	"cachePatternMatching": "names are matched when " +
		"a directory has changed",
}

// taildir writes a tail source.
func (c *converter) taildir(s *part) {
	c.put(2, "source:")
	c.put(3, "tail:")
	var include []string
	for group := range strings.FieldsSeq(s.get("filegroups")) {
		key := "filegroups." + group
		pattern := s.get(key)
		if pattern == "" {
			c.note(s, key, migrate.Lost, "%s", "is missing: the group names no files")
			continue
		}
		// The directory is literal; the last element is a regular expression.
		dir, name := path.Split(pattern)
		list, wider, ok := globs(name)
		if !ok {
			c.note(
				s,
				key,
				migrate.Lost,
				"%q is no glob, and cannot be made one: write include yourself",
				name,
			)
			continue
		}
		if wider {
			c.note(
				s,
				key,
				migrate.Differs,
				"%q became %s, which match more names: look at them",
				name,
				quotes(list),
			)
		}
		for _, g := range list {
			include = append(include, literalGlob([]rune(dir))+g)
		}
	}
	if len(include) == 0 {
		c.broken++
	}
	c.put(4, "include: %s", quotes(include))
	c.put(4, "exclude: []")
	if on(s.get("skipToEnd")) {
		c.put(4, "start: end")
	} else {
		c.put(4, "start: beginning")
	}
	file := "~/.flume/taildir_position.json"
	if s.has("positionFile") {
		file = s.get("positionFile")
	}
	c.progress = append(c.progress, progress{positions: file})
	c.eventHeaders(s)
	for _, key := range s.below("headers") {
		c.note(s, key, migrate.Differs, "%s", "records have no headers; set: {name: "+
			"\"'value'\"} behind a where over meta.file gives them a field")
	}
	for key, why := range needlessOfTaildir {
		if s.has(key) {
			c.note(s, key, migrate.Needless, "%s", why)
		}
	}
}

// on reports whether a Java boolean is true.
func on(value string) bool { return strings.EqualFold(value, "true") }

// processors writes the interceptors that have an equivalent.
func (c *converter) processors(s *part) {
	var list []string
	for name := range strings.FieldsSeq(s.get("interceptors")) {
		p := "interceptors." + name + "."
		kind := s.get(p + "type")
		switch {
		case strings.EqualFold(kind, "regex_filter") ||
			strings.HasSuffix(kind, "RegexFilteringInterceptor$Builder"):
			pattern := s.get(p + "regex")
			if _, err := regexp.Compile(pattern); err != nil {
				c.note(s, p+"regex", migrate.Lost,
					"%q is not a regular expression of Go (%v): every record goes through",
					pattern, err)
				break
			}
			not := ""
			if on(s.get(p + "excludeEvents")) {
				not = "not "
			}
			list = append(list, not+"(message matches "+strconv.Quote(pattern)+")")
		default:
			c.note(s, p+"type", migrate.Lost, "an interceptor %q does not exist here; "+
				"what it did to headers has no receiver, what it did "+
				"to bodies can be a processor (docs/processors.md)", kind)
		}
		s.below(strings.TrimSuffix(p, "."))
	}
	if len(list) == 0 {
		return
	}
	c.put(2, "processors:")
	for _, expr := range list {
		c.put(3, "- where: %s", quote(expr))
	}
}
