//penstock:pure

package parked

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Row is a delivery as it is parked.
type Row struct {
	// Partition, Position and Sub identify the record; see [stream.Batch.AppendRecordID]. A record that
	// is parked already is not parked a second time.
	Partition string
	Position  stream.Position
	Sub       uint32
	File      string // name of the partition
	Weight    int    // source records that it counts for: 0 if another row of the same origin counts, else 1

	Key    string // business key, for queries and Idempotency-Key
	Host   string // host:port of URL; deliveries of one host share its limits
	URL    string
	Method string
	Header string // JSON object of texts; "" for none
	Signer string // selects the signing keys; never a key itself
	Body   []byte
	Record []byte    // the source's text, for a dead letter; nil if it is Body
	Start  time.Time // planned time of the first attempt

	// Waits are the record's own schedule; see [Schedule.Waits]. Nil means that of the route. An
	// empty list means a single attempt. They are stored in milliseconds.
	Waits []time.Duration
}

// rowOverhead is roughly the size of a row without its texts, including indices.
const rowOverhead = 256

// Bytes is the row's part of the store's bound.
func (r *Row) Bytes() int64 {
	return int64(
		rowOverhead + 8*len(r.Waits) + len(r.Key) + len(r.URL) + len(r.Header) + len(
			r.Signer,
		) + len(r.File) + len(r.Body) + len(r.Record),
	)
}

// Delivery is a parked row with its progress.
type Delivery struct {
	Row
	Progress
	Ended time.Time // zero if it has not ended
}

// Schedule returns the schedule of the delivery. That of its route is s.
func (d *Delivery) Schedule(s Schedule) Schedule {
	if d.Waits != nil {
		s.Waits = d.Waits
	}
	return s
}

const oneAttempt = "none"

// writeWaits and readWaits give a schedule the form in which it is stored: milliseconds, separated
// by spaces; oneAttempt for an empty list.
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

// Entry is one line of a delivery's history: an attempt, a planned time that passed without one, or
// an operator's action.
type Entry struct {
	At     time.Time     `json:"at"`
	Event  string        `json:"event"`
	Took   time.Duration `json:"-"`
	Millis int64         `json:"milliseconds,omitempty"`
	Status int           `json:"status,omitempty"` // of the response; 0 if there was none
	Detail string        `json:"detail,omitempty"` // error, or the reason why nothing was sent
	Body   string        `json:"body,omitempty"`   // beginning of the response's body
}

// Change is one step of a delivery: its new progress, and the lines for its history.
type Change struct {
	Delivery *Delivery
	To       Progress
	Entries  []Entry
}

// Totals are sums over a store. All but Waiting, Exhausted and Bytes only grow, whatever is pruned.
// They are in source records, see [Row].Weight.
type Totals struct {
	Waiting   int64 `json:"parked"`
	Exhausted int64 `json:"exhausted"` // of those in Waiting
	Done      int64 `json:"done"`
	Dead      int64 `json:"dead"`
	Cancelled int64 `json:"cancelled"`
	Repeated  int64 `json:"repeated"` // rows that were parked already
	Bytes     int64 `json:"bytes"`    // of all rows, ended ones included
}
