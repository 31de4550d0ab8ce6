//penstock:pure

package table

import (
	"fmt"
	"hash/crc32"
	"slices"
)

// Values of the option reused_keys.
const (
	stopOnReuse = "stop"
	ignoreReuse = "ignore"
)

// rowDigest is a digest of the values of a row without its key. It consists of eight checksums. The
// columns that are not in order_by are numbered from 0, and checksum i covers the columns i, i+8,
// i+16, ... The zero rowDigest means that the digest is unknown, or that all columns are in
// order_by.
type rowDigest [8]uint16

// digest returns the digest of a record that was made from a row of r.
func (m *rowMaker) digest(r *relation, record int) (d rowDigest) {
	first := int(m.batch.Records[record].Field)
	n := 0
	for i, f := range m.batch.FieldsOf(record) {
		if slices.Contains(r.order, i) {
			continue
		}
		text := m.batch.Data
		if _, apart := slices.BinarySearch(m.moved, first+i); apart {
			text = m.side
		}
		sum := crc32.Update(uint32(f.Kind)+1, castagnoli, text[f.Off:f.Off+f.Len])
		lane := &d[n%len(d)]
		*lane = uint16(sum) ^ uint16(sum>>16) ^ (*lane<<1 | *lane>>15)
		n++
	}
	return d
}

// pair is a remembered row that is still in the table. It has the digest at the time of reading,
// and the current one.
type pair struct {
	key          string
	old, current rowDigest
}

// maxPairs is the maximum number of remembered rows that are compared with the rows in the table.
const maxPairs = 16

// startedOver reports whether the last rows of pairs were replaced by other rows with the same
// keys. from is the first such key. pairs must be ascending by key.
//
// A row counts as replaced if all its checksums have changed, because an update of the same row
// rarely changes all checksums. Checksums that are equal in all rows are ignored. Normally the last
// three rows must be replaced, or all rows if there are fewer. If the rows after the pairs were
// deleted (tailGone), one replaced row is enough.
func startedOver(pairs []pair, tailGone bool) (from string, over bool) {
	lanes := distinguishing(pairs)
	run := 0
	for run < len(pairs) {
		p := &pairs[len(pairs)-1-run]
		if slices.ContainsFunc(lanes, func(i int) bool { return p.old[i] == p.current[i] }) {
			break
		}
		run++
	}
	if len(lanes) == 0 || run == 0 || !tailGone && run < min(3, len(pairs)) {
		return "", false
	}
	return pairs[len(pairs)-run].key, true
}

// distinguishing returns the indexes of the checksums that can differ between rows: their old
// values are not all equal. If there are none, it returns the indexes of all checksums in use.
func distinguishing(pairs []pair) []int {
	var differ, used []int
	for i := range len(rowDigest{}) {
		isUsed := func(p pair) bool { return p.old[i] != 0 || p.current[i] != 0 }
		if slices.ContainsFunc(pairs, isUsed) {
			used = append(used, i)
		}
		if slices.ContainsFunc(pairs, func(p pair) bool { return p.old[i] != pairs[0].old[i] }) {
			differ = append(differ, i)
		}
	}
	if len(differ) == 0 {
		return used
	}
	return differ
}

const reuseRemedy = "rows with reused keys would be lost: order by a column whose values are " +
	"never reused, reset the position with `penstock checkpoint reset`, or accept the loss with " +
	"`reused_keys: ignore`"

// replacedError returns the error for rows that no longer have the values with which they were
// read.
func replacedError(r *relation, from, pos string) error {
	return fmt.Errorf("the keys of %s started over: from (%s) to the position (%s), rows differ "+
		"from those that were read under the same keys; "+
		"%s", r.name, r.keys.show(from), r.keys.show(pos), reuseRemedy)
}

// behindError returns the error for a table with a last row before the position up to which the
// table was read. Keys up to this position may then be used again.
func behindError(r *relation, last, pos string) error {
	return fmt.Errorf("the keys of %s may have started over: its last row is (%s), before the "+
		"position (%s); %s",
		r.name, r.keys.show(last), r.keys.show(pos), reuseRemedy)
}
