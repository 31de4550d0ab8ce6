package table

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// reading is a table, view or query that the source reads.
type reading struct {
	name     string
	relation *relation
	maker    rowMaker       // each partition has a copy; all copies share the names
	stripes  map[int64]bool // with the option split: the stripes that are open, by number
}

// maxStripes bounds the partitions of one table. At every poll, each partition is checked.
const maxStripes = 1000

// openStripes opens a partition for each stripe between the first and the last row, unless it is
// open already. Example: with split 1000, stripe 2 has the rows in which the first column of
// order_by is from 2000 to 2999.
func (r *reader) openStripes(ctx context.Context, db database, t *reading) error {
	rel, width := t.relation, r.s.o.Split
	low, high, some, err := reach(ctx, db, rel)
	if err != nil || !some {
		return err
	}
	if high > math.MaxInt64-width || low < math.MinInt64+width {
		return fmt.Errorf("%s has values from %d to %d, but `split` needs values that are at "+
			"least %d from the limits of 64-bit integers: remove it", rel.name, low, high, width)
	}
	first, last := floorDiv(low, width), floorDiv(high, width)
	if last-first >= maxStripes {
		return fmt.Errorf("%s would have %d partitions of %d values from %d to %d; the limit is "+
			"%d: raise `split`",
			rel.name, last-first+1, width, low, high, maxStripes)
	}
	if t.stripes == nil {
		t.stripes = make(map[int64]bool)
	}
	for n := first; n <= last; n++ {
		if t.stripes[n] {
			continue
		}
		bounds := &stripe{keyValue{kind: keyInteger, n: n * width},
			keyValue{kind: keyInteger, n: (n + 1) * width}}
		p, err := r.openPartition(t, stripeID(t.name, width)+strconv.FormatInt(n, 10),
			fmt.Sprintf("%s from %d", t.name, n*width), bounds)
		if err != nil {
			return err
		}
		t.stripes[n] = true
		r.parts = append(r.parts, p)
	}
	return nil
}

// stripeID returns the common start of the ids of a table's stripes with the given width.
func stripeID(name string, width int64) string {
	return partitionID(name) + "#" + strconv.FormatInt(width, 10) + "."
}

// reach returns the values of the first order_by column in the first and in the last row. some is
// false if there are no rows.
func reach(ctx context.Context, db database,
	rel *relation) (low, high int64, some bool, err error) {
	least, err := firstKey(ctx, db, rel, rowQuery{limit: 1})
	if err != nil || least == "" {
		return 0, 0, false, err
	}
	last, err := db.observe(ctx, rel, rowQuery{})
	if err != nil || last.last == "" {
		return 0, 0, false, err
	}
	var ends [2]int64
	for i, key := range []string{least, last.last} {
		values, err := rel.keys.decode(key)
		if err != nil {
			return 0, 0, false, err
		}
		first := values[0]
		switch {
		case first.kind == keyUnsigned && first.n < 0:
			return 0, 0, false, fmt.Errorf("%s has the value %d in column %q, but `split` is "+
				"limited to %d: remove it", rel.name, uint64(first.n), rel.keys.names[0],
				math.MaxInt64)
		case first.kind != keyInteger && first.kind != keyUnsigned:
			return 0, 0, false, fmt.Errorf("`split` wants whole numbers in column %q of %s, the "+
				"first of `order_by`, but it has other values", rel.keys.names[0], rel.name)
		}
		ends[i] = first.n
	}
	return ends[0], ends[1], true, nil
}

func floorDiv(n, by int64) int64 {
	q := n / by
	if n%by < 0 {
		q--
	}
	return q
}

// otherSplit returns an error if the table was read with another value of the option split in an
// earlier run. With the new value, all rows would be read a second time.
func (r *reader) otherSplit(name string) error {
	if r.o.Known == nil {
		return nil
	}
	whole, own := partitionID(name), stripeID(name, r.s.o.Split)
	for m := range r.o.Known {
		id := strings.TrimSuffix(m.Part.ID, lateSuffix)
		mine := id == whole
		if r.s.o.Split > 0 {
			mine = strings.HasPrefix(id, own)
		}
		if !mine && (id == whole || strings.HasPrefix(id, whole+"#")) {
			return fmt.Errorf("the checkpoint has positions of the table %q with another "+
				"`split` (partition %s), so all rows would be read again; restore that value, "+
				"or reset the positions with `penstock checkpoint reset` and in the sink's "+
				"ledger", name, id)
		}
	}
	return nil
}
