package checkpoint

import (
	"fmt"
	"strings"
)

// Report describes a checkpoint that was opened or read. The zero Report means that none was found.
type Report struct {
	File   string // path
	Fresh  bool   // the file did not exist: everything is delivered from the beginning
	Routes int    // with marks or places; the two layers of a route count once
	Marks  int    // of all routes
	Bytes  int64  // original length of the file
	// Cut is the number of bytes of an unfinished last entry, which a kill or a power loss has
	// left. It is not an error.
	Cut    int64
	Damage string // the damage and its offset, or ""
	Lost   int64  // bytes from the damage to the end, which were not used
	// Aside lists the copies of damaged files and of files in an older format, in the same
	// directory.
	Aside []string
}

// String returns the report as text: one sentence if there is no damage.
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
