package intake

import (
	"bytes"
	"context"
	"math/bits"
	"sort"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// Records are received records that a source submits together. The zero value is empty.
type Records struct {
	data  []byte  // each record with a line end
	ends  []int32 // of each record in data, after its line end; nil if each line is a record
	count int
	odd   bool // a record contains a line end or ends in CR
	// verbatim means that data has exactly the bytes that were received.
	verbatim bool
}

// Lines returns the lines of data as records. data must end with a line end. The caller must not
// use data afterwards.
func Lines(data []byte) Records { return Records{data: data, count: bytes.Count(data, newline)} }

var newline = []byte{'\n'}

// Add appends a copy of a record. After Add, do not use earlier copies of r.
func (r *Records) Add(record []byte) {
	if need := len(r.data) + len(record) + 1; need > cap(r.data) {
		old := r.data
		r.data = append(Buffer(1<<bits.Len64(uint64(need-1))), old...)
		recycle(old)
	}
	r.data = append(append(r.data, record...), '\n')
	r.verbatim = false
	if !r.odd && (bytes.IndexByte(record, '\n') >= 0 || bytes.HasSuffix(record, []byte{'\r'})) {
		r.odd = true
		r.ends = appendEnds(nil, r.data[:len(r.data)-len(record)-1], 0)
	}
	if r.odd {
		r.ends = append(r.ends, int32(len(r.data)))
	}
	r.count++
}

// Len returns the number of records.
func (r *Records) Len() int { return r.count }

// Size returns the bytes of the records with their line ends.
func (r *Records) Size() int { return len(r.data) }

// cost returns the number of bytes that the records count against the memory limit.
func (r *Records) cost() int64 { return int64(len(r.data)) + int64(r.count)*RecordOverhead }

// Submission is data that a source has submitted to the routes of its pipeline.
type Submission struct {
	in      *Intake
	records Records
	cost    int64
	onRead  func() // nil, or called when the first route reads it
	part    *stream.Partition
	awaited bool          // a sender waits for it, so that its batch does not linger
	from    int64         // its first place, once a route has read it; guarded by in.mu
	shift   int64         // from minus its position in part; guarded by in.mu
	mainTo  int64         // Intake.mainEnd after it was read; guarded by in.mu
	done    chan struct{} // closed when every route has settled it, or it is withdrawn
	err     error         // why it was not delivered; set before done is closed

	unwanted bool // Withdraw was called after a route had read it; guarded by in.mu
	// mayBeSent means that another reader may have sent the data: the pipeline has several routes,
	// or a reader was opened after the data had been read. in.mu guards this field.
	mayBeSent bool
}

// position converts at, an offset in the bytes of all submissions, to a position in the
// submission's partition.
func (s *Submission) position(at int64) int64 { return at - s.shift }

func (s *Submission) to() int64 { return s.from + int64(len(s.records.data)) }

// Submit passes records to the routes and ends the reservation. The records may be larger than the
// reservation. Set awaited if a sender waits until the records are settled: a batch with them is
// then sent at once. After an error, [ErrDraining] or [ErrTooLarge], the routes do not get the
// records.
func (r *Reservation) Submit(records Records, awaited bool) (*Submission, error) {
	i := r.in
	if !records.odd {
		records.ends = nil
	}
	s := &Submission{
		in: i, records: records, cost: records.cost(), onRead: r.onRead, awaited: awaited,
		part: &i.part, done: make(chan struct{}),
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var err error
	switch {
	case i.isRefusing():
		err = ErrDraining
	case records.Size() > MaxSubmission:
		err = ErrTooLarge
	}
	if err != nil {
		r.settle(0)
		return nil, err
	}
	r.settle(s.cost)
	if r.request != "" {
		if other := i.working[r.request]; other != nil {
			i.gate.free(s.cost)
			return other, nil
		}
		s.part = &stream.Partition{ID: r.request, Name: RequestName(time.Now())}
	}
	if records.count == 0 {
		i.gate.free(s.cost)
		close(s.done)
		return s, nil
	}
	if r.request != "" {
		i.working[r.request] = s
	}
	if i.stopped && !awaited {
		i.lose(records)
	}
	i.queue = append(i.queue, s)
	i.notify()
	return s, nil
}

// pieces determines the size of the submissions of Add: each counts at most 1/pieces of the memory
// limit, or has a single record.
const pieces = 4

// Add submits records for which no sender waits. It splits many records into several submissions
// and waits for room for each one. All records together may therefore exceed the memory limit. A
// single record that exceeds the limit waits until the intake is empty. If Add fails, the records
// that were not submitted are counted as lost.
func (i *Intake) Add(ctx context.Context, records Records) error {
	for {
		piece, rest := records.split(max(i.gate.max/pieces, 1))
		r, err := i.Reserve(ctx, min(piece.cost(), i.gate.max))
		if err == nil {
			_, err = r.Submit(piece, false)
		}
		if err != nil {
			i.lose(records)
			return err
		}
		if rest.count == 0 {
			return nil
		}
		records = rest
	}
}

// lose counts and logs records as lost, because the source has stopped or because they could not be
// submitted.
func (i *Intake) lose(records Records) {
	if records.count == 0 {
		return
	}
	i.host.Count(recordsLost, int64(records.count))
	i.host.Log().Warn("records are lost: the source has stopped", "source", i.o.Name, "records",
		records.count, "bytes", records.Size())
}

// split divides r into two parts. The result first has the longest beginning of r that counts at
// most the given number of bytes against the memory limit, but at least one record. The result rest
// has the other records.
func (r *Records) split(most int64) (first, rest Records) {
	if r.cost() <= most || r.count < 2 {
		return *r, Records{}
	}
	ends := r.ends
	if ends == nil {
		ends = appendEnds(nil, r.data, 0)
	}
	n := max(1, sort.Search(len(ends), func(k int) bool {
		return int64(ends[k])+int64(k+1)*RecordOverhead > most
	}))
	at := ends[n-1]
	first = Records{data: bytes.Clone(r.data[:at]), ends: ends[:n:n], count: n, odd: r.odd,
		verbatim: r.verbatim}
	rest = Records{data: r.data[at:], count: r.count - n, odd: r.odd, verbatim: r.verbatim}
	for _, end := range ends[n:] {
		rest.ends = append(rest.ends, end-at)
	}
	return first, rest
}

// Wait waits until every route has settled the data (delivered, dead-lettered or dropped it), and
// then returns nil. The error is [ErrWithdrawn], [ErrUnsettled] or the cause of ctx. If the outcome
// is already known, Wait returns it even if ctx is done.
func (s *Submission) Wait(ctx context.Context) error {
	if err := s.in.await(ctx, s.done); err != nil {
		return err
	}
	return s.err
}

// finish frees the memory of s, and wakes the callers that wait for it. The caller holds i.mu.
func (i *Intake) finish(s *Submission) {
	i.gate.free(s.cost)
	recycle(s.records.data)
	s.records = Records{} // a waiter may keep s
	if s.unwanted {
		i.unwanted--
	}
	delete(i.working, s.part.ID)
	close(s.done)
}
