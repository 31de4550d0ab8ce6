package checkpoint

import (
	"fmt"
	"strings"
)

// Report describes a checkpoint that was opened or read.
type Report struct {
	File   string // path
	Fresh  bool   // the file did not exist, so everything is delivered from the beginning
	Routes int    // routes with marks or resume tokens; keys with BootMark do not count extra
	Marks  int    // of all routes
	Bytes  int64  // size of the file before it was opened
	// Cut is the number of bytes of an unfinished last entry, or 0. A kill or a power loss may
	// leave such an entry. This is not an error.
	Cut    int64
	Damage string // the damage and its offset, or ""
	Lost   int64  // bytes that were not used, from the damage to the end
	// Aside has the names of the copies that Open has made of damaged files and of files in an
	// older format. They are in the same directory.
	Aside []string
}

// String returns the report as text.
func (r *Report) String() string {
	if r.Fresh {
		return fmt.Sprintf("no checkpoint yet, created %s: delivering from the beginning", r.File)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint %s: %s of %s in %d bytes", r.File, count(r.Marks, "mark"),
		count(r.Routes, "route"), r.Bytes)
	if r.Cut > 0 {
		fmt.Fprintf(&b, "; ignored %d bytes of an unfinished last entry", r.Cut)
	}
	if r.Damage != "" {
		const text = "; DAMAGED: %s; the following %d bytes are ignored, and the data that they " +
			"settled is delivered again"
		fmt.Fprintf(&b, text, r.Damage, r.Lost)
	}
	if len(r.Aside) > 0 {
		fmt.Fprintf(&b, "; the original file is kept as %s", strings.Join(r.Aside, ", "))
	}
	return b.String()
}

// Err returns an error with a remedy if the checkpoint is damaged. Otherwise it returns nil.
func (r *Report) Err() error {
	if r.Damage == "" {
		return nil
	}
	return fmt.Errorf("checkpoint %s is damaged: %s: start penstock once, which keeps a copy and "+
		"resumes from the entries before the damage; the data that later entries had settled is "+
		"delivered again", r.File, r.Damage)
}

// count returns a number with its noun.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func (l *loaded) report(path string) *Report {
	routes := make(map[string]bool)
	for _, r := range l.st.alive() {
		key, _, _ := strings.Cut(r.key, BootMark)
		routes[key] = true
	}
	r := &Report{File: path, Routes: len(routes), Marks: l.st.marks, Bytes: l.size}
	switch {
	case l.bad == nil:
	case l.torn:
		r.Cut = l.size - l.good
	default:
		r.Lost = l.size - l.good
		r.Damage = fmt.Sprintf("the entry at byte %d: %v", l.good, l.bad)
	}
	return r
}
