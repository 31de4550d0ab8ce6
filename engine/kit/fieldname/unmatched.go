package fieldname

import "github.com/penstock-io/penstock/stream"

// Unmatched reports the names of a processor that no record of a batch has. It counts each of these
// names once per batch in the counter names_unmatched, and also logs those of the first batch. The
// zero value is ready to use. It must be used by one goroutine.
type Unmatched struct {
	matched []bool
	records int
	logged  bool // the first batch was reported
}

// Counter is the name of the counter to which End adds.
const Counter = "names_unmatched"

// Begin prepares for a batch and the given number of names.
func (u *Unmatched) Begin(b *stream.Batch, names int) {
	u.matched = append(u.matched[:0], make([]bool, names)...)
	u.records = b.Kept()
}

// Matched records that name k was found.
func (u *Unmatched) Matched(k int) { u.matched[k] = true }

// End reports the unmatched names of the batch to h, which may be nil. The function name returns
// name k as written in the config.
func (u *Unmatched) End(h stream.Host, name func(k int) string) {
	if h == nil || u.records == 0 {
		return
	}
	n := 0
	for k, matched := range u.matched {
		if matched {
			continue
		}
		n++
		if !u.logged {
			h.Log().Info("no record of the first batch has a field of this name", "name", name(k),
				"records", u.records)
		}
	}
	u.logged = true
	if n > 0 {
		h.Count(Counter, int64(n))
	}
}
