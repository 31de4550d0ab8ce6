package checkpoint

import (
	"fmt"
	"strings"
)

// Report says what was found when a checkpoint was opened or read. The zero Report found none.
type Report struct {
	File   string   // path
	Fresh  bool     // there was no file: everything is delivered from the beginning
	Routes int      // with marks or places; the two layers of one count once
	Marks  int      // of all routes
	Bytes  int64    // length of the file as it was found
	Cut    int64    // bytes of an unfinished last entry, which a kill or a power loss left; no fault
	Damage string   // what is damaged, and where; "": nothing
	Lost   int64    // bytes from the damage on, which were not used
	Aside  []string // files of the directory that hold copies of what was found: damaged ones, those of an older format
}

// String gives the report in words: one sentence where all is well.
func (r *Report) String() string {
	if r.Fresh {
		return fmt.Sprintf("no checkpoint yet, made %s: delivering from the beginning", r.File)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoint %s: %s of %s in %d bytes", r.File, count(r.Marks, "mark"), count(r.Routes, "route"), r.Bytes)
	if r.Cut > 0 {
		fmt.Fprintf(&b, "; %d bytes of an unfinished last entry were left out", r.Cut)
	}
	if r.Damage != "" {
		const text = "; DAMAGED: %s; the %d bytes from there on were not used, what they had settled is delivered again"
		fmt.Fprintf(&b, text, r.Damage, r.Lost)
	}
	if len(r.Aside) > 0 {
		fmt.Fprintf(&b, "; the file as it was is kept as %s", strings.Join(r.Aside, ", "))
	}
	return b.String()
}

// count is so many things in words.
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
