//penstock:pure

package parked

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Row is a delivery to be parked.
type Row struct {
	// Partition, Position and Sub identify the record; see [stream.Batch.AppendRecordID]. The store
	// has at most one row for each record.
	Partition string
	Position  stream.Position
	Sub       uint32
	File      string // name of the partition
	Weight    int    // source records: 1, or 0 if another row of the same origin counts it

	Key    string // business key, for queries and Idempotency-Key
	Host   string // host:port of URL; all deliveries to a host share its limits
	URL    string
	Method string
	Header string // JSON object of texts; "" for none
	Signer string // selects the signing keys; never a key itself
	Body   []byte
	Record []byte    // the source's record, for a dead letter; nil if it equals Body
	Start  time.Time // planned time of attempt 0

	// Waits is the schedule of this record; see [Schedule.Waits]. Nil means the schedule of the
	// route. An empty list means a single attempt. The waits are stored in milliseconds.
	Waits []time.Duration
}

// rowOverhead is the approximate size of a row in the file without its texts, with its index
// entries.
const rowOverhead = 256

// Bytes returns the number of bytes by which the row counts against the size limit of the store.
func (r *Row) Bytes() int64 {
	return int64(rowOverhead + 8*len(r.Waits) + len(r.Key) + len(r.URL) + len(r.Header) +
		len(r.Signer) + len(r.File) + len(r.Body) + len(r.Record))
}

// Delivery is a parked row with its progress.
type Delivery struct {
	Row
	Progress
	Ended time.Time // zero if it has not ended
}

// Schedule returns the schedule of the delivery. This is s, the schedule of its route. If the
// delivery has waits of its own, they replace those of s.
func (d *Delivery) Schedule(s Schedule) Schedule {
	if d.Waits != nil {
		s.Waits = d.Waits
	}
	return s
}

const oneAttempt = "none"

// writeWaits returns waits as they are stored: milliseconds separated by spaces, or oneAttempt for
// an empty list. readWaits parses this form.
func writeWaits(waits []time.Duration) string {
	if waits != nil && len(waits) == 0 {
		return oneAttempt
	}
	var text []byte
	for i, w := range waits {
		if i > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, w.Milliseconds(), 10)
	}
	return string(text)
}

func readWaits(text string) (waits []time.Duration, err error) {
	if text == oneAttempt {
		return []time.Duration{}, nil
	}
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the stored schedule %.50q is malformed", text)
		}
		waits = append(waits, time.Duration(n)*time.Millisecond)
	}
	return waits, nil
}

// RecordText returns the text of the source's record.
func (d *Delivery) RecordText() []byte {
	if d.Record == nil {
		return d.Body
	}
	return d.Record
}

// RecordID returns the id of the record.
func (d *Delivery) RecordID() string {
	b := stream.Batch{
		Spans:   []stream.Span{{Part: &stream.Partition{ID: d.Partition}}},
		Records: []stream.Record{{Origin: d.Position, Sub: d.Sub}},
	}
	return string(b.AppendRecordID(nil, 0))
}

// Entry is one entry of a delivery's history: an attempt, a poll, a skipped attempt, or an
// operator's action.
type Entry struct {
	At     time.Time
	Event  string
	Took   time.Duration
	Status int    // of the response; 0 if there was none
	Detail string // error, or the reason why nothing was sent
	Body   string // beginning of the response's body
}

// Change is one step of a delivery: its new progress, and the entries for its history.
type Change struct {
	Delivery *Delivery
	To       Progress
	Entries  []Entry
}

// Totals counts the deliveries of a store by their state. Repeated counts rows, and Bytes is a
// size. All others count source records: a delivery counts as many times as it has source records
// (see [Row].Weight). Only Waiting, Exhausted and Bytes can decrease. Pruning reduces only Bytes.
type Totals struct {
	Waiting   int64
	Exhausted int64 // also counted in Waiting
	Done      int64
	Dead      int64
	Cancelled int64
	Repeated  int64 // rows that were already parked
	Bytes     int64 // of all rows, ended ones included
}
