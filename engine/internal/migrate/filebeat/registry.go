package filebeat

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
	"github.com/penstock-io/penstock/vfs"
)

// stored has the settings of one input that identify its entries in Filebeat's registry (the stored
// read positions).
type stored struct {
	kind, id       string
	include        []string
	data, registry string
	offset, length int64 // byte range of the fingerprint
	utf16          bool  // encoding of the files
	fromEnd        bool  // files without a position are read from their ends
}

// fingerprint reads the options for the byte range of the fingerprint.
func (s *stored) fingerprint(in *migrate.Value) {
	s.length = 1024
	f := in.Get("prospector", "scanner", "fingerprint")
	if n, err := strconv.ParseInt(f.Text("offset"), 10, 64); err == nil && n >= 0 {
		s.offset = n
	}
	if n, err := strconv.ParseInt(f.Text("length"), 10, 64); err == nil && n > 0 && n <= 1<<20 {
		s.length = n
	}
}

// carry converts the stored positions of the input's files.
func (s stored) carry(files vfs.FS, dir string) (migrate.Carried, error) {
	c := &migrate.Carrier{Files: files, Base: dir, Program: "Filebeat", UTF16: s.utf16}
	folder := c.Path(filepath.Join(s.data, cmp.Or(s.registry, "registry"), "filebeat"))
	if filepath.IsAbs(s.registry) {
		folder = filepath.Join(s.registry, "filebeat")
	}
	entries, err := readRegistry(c, folder)
	if err != nil {
		return c.Carried, err
	}
	if entries == nil {
		c.Note("registry", migrate.Differs, "%s does not exist: the option start applies to "+
			"every file. To resume at Filebeat's positions, import on its machine after it has "+
			"stopped", folder)
		return c.Carried, nil
	}
	count := 0
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		at, ok := s.position(key, entries[key])
		if !ok || at.Offset == 0 && !s.fromEnd { // it is read from its beginning anyway
			continue
		}
		if at.Offset > 0 {
			count++
		}
		if err := c.Resume(at); err != nil {
			return c.Carried, err
		}
	}
	c.Note("registry", migrate.Differs, "%d of %d files resume at their positions in %s; data "+
		"that Filebeat delivered after its last entry is repeated", len(c.Marks), count, folder)
	return c.Carried, nil
}

// entry is the state of one file in the registry, written by an input of type log or filestream.
type entry struct {
	Source string `json:"source"`
	Offset int64  `json:"offset"`
	Cursor *struct {
		Offset int64 `json:"offset"`
	} `json:"cursor"`
	Meta struct {
		Source string `json:"source"`
	} `json:"meta"`
}

// position returns the read position in the entry with the given key. It returns false if the
// entry belongs to another input, or has no position.
func (s stored) position(key string, e entry) (migrate.StoredPosition, bool) {
	part := strings.Split(key, "::")
	if len(part) < 4 || !isFile(key) {
		return migrate.StoredPosition{}, false
	}
	at := migrate.StoredPosition{File: cmp.Or(e.Meta.Source, e.Source), Offset: e.Offset}
	if part[0] == "filestream" {
		if s.kind != "filestream" || part[1] != s.id && (s.id != "" || part[1] != ".global") ||
			e.Cursor == nil {
			return at, false
		}
		at.Offset = e.Cursor.Offset
	} else if s.kind == "filestream" || !s.matches(at.File) {
		return at, false
	}
	identity, value := part[2], strings.Join(part[3:], "::")
	switch {
	case strings.HasSuffix(identity, "native"):
		inode, _, _ := strings.Cut(value, "-")
		n, err := strconv.ParseUint(inode, 10, 64)
		at.Inode = n
		return at, err == nil
	case identity == "fingerprint":
		at.Same = func(f vfs.File) (bool, error) { return s.hasFingerprint(f, value) }
	case identity == "path":
		at.File = value
	}
	return at, at.File != ""
}

func (s stored) matches(file string) bool {
	isMatch := func(glob string) bool { return migrate.MatchGlob(glob, file) }
	return slices.ContainsFunc(s.include, isMatch)
}

// hasFingerprint reports whether the SHA-256 of the byte range of file f is want.
func (s stored) hasFingerprint(f vfs.File, want string) (bool, error) {
	data := make([]byte, s.length)
	switch n, err := f.ReadAt(data, s.offset); {
	case err != nil && !errors.Is(err, io.EOF):
		return false, err
	case int64(n) < s.length:
		return false, nil
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]) == want, nil
}

// readRegistry returns the entries of a registry by key, or nil if there is none.
func readRegistry(c *migrate.Carrier, folder string) (map[string]entry, error) {
	entries := make(map[string]entry)
	active, err := c.Read(filepath.Join(folder, "active.dat"))
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	snapshot := filepath.Base(strings.TrimSpace(string(active)))
	var last uint64 // number of the last change in the snapshot
	if len(active) > 0 {
		text, err := c.Read(filepath.Join(folder, snapshot))
		if err != nil || text == nil {
			return nil, fmt.Errorf("registry: the snapshot %s in %s, which active.dat names: %w",
				snapshot, folder, cmp.Or(err, errors.New("is not there")))
		}
		if err := readSnapshot(text, entries); err != nil {
			return nil, fmt.Errorf("registry: snapshot %s: %w", snapshot, err)
		}
		last, _ = strconv.ParseUint(strings.TrimSuffix(snapshot, ".json"), 10, 64)
	}
	text, err := c.Read(filepath.Join(folder, "log.json"))
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if len(active) == 0 && text == nil {
		return nil, nil
	}
	torn, err := readChanges(text, last, entries)
	if err != nil {
		return nil, c.Unusable(folder, fmt.Errorf("log.json: %w", err))
	}
	if torn > 0 {
		c.Note("registry", migrate.Differs, "the last change in log.json in %s, at line %d, is "+
			"incomplete and is ignored: its file resumes at the position before this change, and "+
			"data that Filebeat delivered since then is repeated; if the file has no earlier "+
			"entry, the option start applies to it", folder, torn)
	}
	return entries, nil
}

func readSnapshot(text []byte, into map[string]entry) error {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for _, raw := range list {
		var k struct {
			Key string `json:"_key"`
		}
		var e entry
		if err := json.Unmarshal(raw, &k); err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &e); err == nil {
			into[k.Key] = e
		} else if isFile(k.Key) {
			return fmt.Errorf("entry %q: %w", k.Key, err)
		}
	}
	return nil
}

// isFile reports whether the entry with the given key was written by an input of type log or
// filestream.
func isFile(key string) bool {
	return strings.HasPrefix(key, "filebeat::") || strings.HasPrefix(key, "filestream::")
}

// readChanges applies a log of changes to the entries of the snapshot (into). Each change has two
// lines: the operation with its number, and the key with its value. The snapshot already has the
// changes with numbers up to last, so they are skipped. A crash of Filebeat may leave an incomplete
// change at the end. readChanges ignores this change and returns its line, or 0 if there is none.
// Other damage is an error, because the positions in the damaged changes are unknown.
func readChanges(text []byte, last uint64, into map[string]entry) (torn int, err error) {
	if len(text) == 0 {
		return 0, nil
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	for i := 0; i < len(lines); i += 2 {
		end := min(i+2, len(lines))
		var op struct {
			Op string `json:"op"`
			ID uint64 `json:"id"`
		}
		var change struct {
			Key   string          `json:"k"`
			Value json.RawMessage `json:"v"`
		}
		err := errors.Join(json.Unmarshal(lines[i], &op), json.Unmarshal(lines[end-1], &change))
		isWhole := err == nil && op.Op != "" && change.Key != ""
		switch {
		case !isWhole && end == len(lines):
			return i + 1, nil
		case !isWhole:
			return 0, fmt.Errorf("line %d: the change is damaged", i+1)
		case op.ID <= last:
			continue
		}
		switch op.Op {
		case "set":
			var e entry
			if err := json.Unmarshal(change.Value, &e); err == nil {
				into[change.Key] = e
			} else if isFile(change.Key) {
				return 0, fmt.Errorf("line %d: entry %q: %w", i+2, change.Key, err)
			}
		case "remove":
			delete(into, change.Key)
		}
	}
	return 0, nil
}
