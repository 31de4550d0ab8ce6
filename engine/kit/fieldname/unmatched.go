package fieldname

import "github.com/penstock-io/penstock/stream"

// Unmatched finds names in a processor's options that no record of a batch has, for example because
// they are misspelled. For each batch, it adds the number of such names to the counter
// names_unmatched. It also logs those of the first batch. The zero value is ready to use. It must
// be used by one goroutine.
type Unmatched struct {
	matched []bool
	records int
	logged  bool // the names of the first batch were logged
}

// Counter is the name of the counter to which End adds.
const Counter = "names_unmatched"

// Begin begins a batch. names is the number of names in the options.
func (u *Unmatched) Begin(b *stream.Batch, names int) {
	u.matched = append(u.matched[:0], make([]bool, names)...)
	u.records = b.Kept()
}

// Matched notes that a record has the name with index k.
func (u *Unmatched) Matched(k int) { u.matched[k] = true }

// End ends the batch. It counts, through h, the names that no record of the batch has. For the
// first batch, it also logs them. If h is nil or the batch has no records, End does nothing. The
// parameter name is a function that returns the k-th name as written in the config.
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
