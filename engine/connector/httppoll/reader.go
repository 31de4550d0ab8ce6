package httppoll

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/readers"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
)

// reader reads the pages for one route.
type reader struct {
	s       *source
	once    bool
	counter func(name string, n int64)
	client  *client
	started time.Time
	pace    pace
	health  health
	fields  intake.Objects

	page      place
	at        int64           // number of steps read so far
	handedOut stream.Position // end of the last span
	above     []stream.Range  // settled ranges after at
	successor place           // the page in which above[0] begins
	content   content         // content of page, if loaded is set
	loaded    bool
	first     int64           // number of steps before the first record of content
	before    digest          // digest of the previous page's records, until page is loaded
	seen      map[digest]bool // with the option id: ids of the records before at
	valid     validators      // validators of page
	openLine  string          // the line that holdOpenLine has removed; "" if none
	openAt    int64           // number of records before openLine
	openSince time.Duration   // when openLine was first seen
	end       bool            // the last request reached the end of the feed, or maxEmptyPages
	unmet     int             // consecutive responses without the expected records, see took
}

var _ stream.Reader = (*reader)(nil)

func (r *reader) now() time.Duration { return time.Since(r.started) }

// moveTo makes the reader continue at a position.
func (r *reader) moveTo(p stream.Position) error {
	page, err := r.placeOf(p)
	if err != nil {
		return err
	}
	r.successor = place{}
	if len(r.above) > 0 && !page.mode.perRecord() {
		if r.successor, err = r.placeOf(r.above[0].From); err != nil {
			return err
		}
	}
	if page.key != r.page.key {
		r.unload()
	}
	r.page, r.at, r.handedOut, r.end, r.unmet = page, p.Num, p, false, 0
	return nil
}

func (r *reader) placeOf(p stream.Position) (place, error) {
	page, err := readPlace(r.s.o.mode(), p.Key)
	if err == nil && p.Num < page.base {
		err = errPlace
	}
	return page, err
}

func (r *reader) unload() {
	r.content, r.loaded, r.seen, r.valid = content{}, false, nil, validators{}
}

// Read implements stream.Reader. All records of a batch come from one page.
func (r *reader) Read(ctx context.Context, b *stream.Batch) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.fill(b); err != nil || len(b.Spans) > 0 {
			return err
		}
		if r.once && r.end && len(r.above) == 0 {
			return io.EOF
		}
		if err := r.poll(ctx); err != nil {
			return err
		}
	}
}

// Commit implements stream.Reader. It does nothing, because the engine stores the position.
func (r *reader) Commit(context.Context, []stream.Mark) error { return nil }

// Close implements stream.Reader.
func (r *reader) Close() error {
	r.s.mu.Lock()
	delete(r.s.readers, r)
	r.s.mu.Unlock()
	r.client.close()
	return nil
}

// fill appends the loaded records to b, and a span for them. It stops at a range that was settled
// earlier (delivered, dead-lettered or dropped), and moves the reader to the end of this range.
// After the last record of the page, it moves to the next page, if there is one.
func (r *reader) fill(b *stream.Batch) error {
	border := int64(math.MaxInt64)
	if len(r.above) > 0 {
		border = r.above[0].From.Num
	}
	for r.loaded && r.at < border && r.index() < len(r.content.records) && !b.Full() {
		if r.endedHere() {
			break
		}
		if err := r.appendRecord(b, r.index()); err != nil {
			return err
		}
	}
	atEnd := r.loaded && r.index() >= len(r.content.records) && r.follows()
	if r.at < border && (atEnd || r.loaded && r.endedHere()) {
		if err := r.nextPage(); err != nil {
			return err
		}
	}
	to := r.page.position(r.at)
	if r.at >= border {
		if to != r.above[0].From {
			r.s.host.Fault(errChanged)
		}
		to = r.above[0].From
	}
	if to != r.handedOut {
		b.Spans = append(b.Spans, stream.Span{
			Part: &r.s.part, Range: stream.Range{From: r.handedOut, To: to}, Bytes: len(b.Data),
		})
		r.handedOut = to
		if r.s.o.Format == JSON {
			r.fields.Add(b)
		}
	}
	if r.at >= border {
		next := r.above[0].To
		r.above = r.above[1:]
		return r.moveTo(next)
	}
	return nil
}

var errChanged = errors.New("http_poll: pages before a delivered record have changed: a record " +
	"may be missing or repeated; the feed must be append-only, and `id` detects repeated " +
	"records of overlapping pages")

// index returns the index of the next record to read in the loaded page.
func (r *reader) index() int { return int(r.at - r.first) }

// follows reports whether another page follows the loaded one.
func (r *reader) follows() bool {
	if r.page.mode.perRecord() {
		return len(r.content.records) > 0
	}
	return r.content.next != "" && r.content.next != r.page.token
}

// endedHere reports whether the loaded page ends at r.at for this reader, even if the page has more
// records. Records may have been added to the page after positions on a later page (successor) were
// settled. These positions count the records that the page had then. Example: the page had 3
// records when it was first read, so positions on successor count on from 4 (3 records and the
// change of the page). Meanwhile the page has 5 records. endedHere returns true after the third
// one. If the reader read all 5, each position on successor would mean another record.
func (r *reader) endedHere() bool {
	return r.successor.base > r.page.base && r.at == r.successor.base-1
}

// appendRecord appends record i of the page. With the option id, it omits the record if a record
// with the same id was read before.
func (r *reader) appendRecord(b *stream.Batch, i int) error {
	r.at++
	if m := r.page.mode; m.perRecord() {
		token := strconv.FormatInt(r.at, 10)
		if m == byRecord {
			token = r.content.cursors[i]
		}
		page, err := newPlace(m, token, r.at, nil)
		if err != nil {
			return r.fail(err)
		}
		r.page = page
	}
	if r.s.o.id != nil {
		switch id := r.content.ids[i]; {
		case id == digest{}:
			r.counter(recordsNoID, 1)
		case r.seen[id]:
			r.counter(recordsRepeated, 1)
			return nil
		default:
			r.seen[id] = true
		}
	}
	readers.AppendRecord(b, r.content.records[i], r.page.position(r.at))
	return nil
}

// nextPage moves the reader to the page after the loaded one.
func (r *reader) nextPage() error {
	all := r.content.records
	if r.openLine != "" { // load compares whole responses, with the line that was held back
		all = append(all[:len(all):len(all)], []byte(r.openLine))
	}
	r.before = digestOfAll(all)
	if r.page.mode.perRecord() {
		r.unload()
		return nil
	}
	if r.endedHere() {
		r.page = r.successor
		r.at++
		r.unload()
		return nil
	}
	var tail []digest
	if r.s.o.id != nil {
		tail = lastOf(r.s.o.Overlap, r.page.tail, r.content.ids)
	}
	page, err := newPlace(r.page.mode, r.content.next, r.at+1, tail)
	if err != nil {
		return r.fail(err)
	}
	r.page = page
	r.at++
	r.unload()
	return nil
}

func (r *reader) fail(err error) error { return fmt.Errorf("%s: %w", r.client.place(), err) }

// poll waits until a request is due, and requests the current page. An error ends the route.
func (r *reader) poll(ctx context.Context) error {
	if wait := r.pace.next() - r.now(); wait > 0 {
		if err := retry.Sleep(ctx, wait); err != nil {
			return context.Cause(ctx)
		}
	}
	var valid validators
	if r.loaded { // otherwise there is no earlier version of the page
		valid = r.valid
	}
	r.counter(polls, 1)
	res, err := r.client.get(ctx, r.s.o.resolve(r.page.token), valid)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && isPermanent(err):
		return err
	case err != nil:
		return r.again(err)
	}
	v := judge(res.status, valid.isSet(), res.header.Get("Retry-After") != "")
	r.pace.demand(r.now(), demanded(res.header, v, time.Now()))
	switch v {
	case misconfigured, temporary, throttled:
		err = &StatusError{Place: r.client.place(), Status: res.status, Cursor: r.page.token != ""}
		if v == misconfigured {
			return err
		}
		if v == throttled {
			r.counter(pollsThrottled, 1)
		}
		return r.again(err)
	case unchanged:
		r.counter(pollsUnchanged, 1)
		return r.took(false)
	}
	return r.load(res)
}

// again handles a failed request. It returns nil if the request is to be repeated. In a finite run
// (--once), it returns an error if all requests have failed for the time retry.give_up.
func (r *reader) again(err error) error {
	r.counter(pollsFailed, 1)
	r.health.failed(err)
	wait, failing := r.pace.failed(r.now())
	if r.once && failing >= r.s.o.Retry.GiveUp {
		return fmt.Errorf("requests have failed for %v (retry.give_up: %v): %w",
			failing.Round(time.Millisecond), r.s.o.Retry.GiveUp, err)
	}
	r.s.host.Log().Warn("request failed; retrying", "again_in", wait, "error", err)
	return nil
}

// load extracts the records from a response, and makes them the records of the current page.
func (r *reader) load(res *response) error {
	c, err := r.s.o.extract(res, r.page.token)
	if errors.Is(err, errFormat) {
		return r.again(r.fail(err))
	}
	if err == nil && r.s.o.id == nil && len(c.records) > 0 && r.before == digestOfAll(c.records) {
		err = errIgnored
	}
	if err != nil {
		return r.fail(err)
	}
	held := r.holdOpenLine(&c)
	r.content, r.loaded, r.first, r.before = c, true, r.page.base, digest{}
	r.valid = validators{}
	if !held { // otherwise the response is needed again even if it has not changed
		r.valid = validators{etag: res.header.Get("ETag"), modified: res.header.Get("Last-Modified")}
	}
	if r.s.o.id != nil {
		r.seen = make(map[digest]bool)
		for _, d := range r.page.tail {
			r.seen[d] = true
		}
		for _, d := range c.ids[:min(r.index(), len(c.ids))] {
			r.seen[d] = true
		}
	}
	return r.took(r.index() < len(c.records))
}

// holdOpenLine removes the last line of a page from c if the line has no line end and may still
// grow, and reports whether it has removed it. The line counts as complete in three cases: a later
// response, after at least half of interval.min, ends with the same line; another page follows; or
// the run is finite (--once). If an incomplete line became a record, the rest of it would be lost.
func (r *reader) holdOpenLine(c *content) (held bool) {
	if !c.open || r.once || c.next != "" && c.next != r.page.token {
		r.openLine = ""
		return false
	}
	at := r.page.base + int64(len(c.records))
	switch last := string(c.records[len(c.records)-1]); {
	case last != r.openLine || at != r.openAt:
		r.openLine, r.openAt, r.openSince = last, at, r.now()
	case r.now()-r.openSince >= r.s.o.Interval.Min/2: // not the request that follows at once
		r.openLine = ""
		return false
	}
	c.dropLast()
	return true
}

// took is called after a successful request. news means that the page has new records. The reader
// may be before a range of settled records (delivered, dead-lettered or dropped). Then the records
// up to this range were read earlier but not settled, and must come again. If several responses in
// a row (patience) lack these records, took reports them as missing, and moves the reader to the
// settled range.
func (r *reader) took(news bool) error {
	r.health.succeeded()
	turned := r.follows()
	r.end = r.pace.page(r.now(), news, turned)
	if news || turned || len(r.above) == 0 {
		r.unmet = 0
		return nil
	}
	// The page lacks the records before the settled range. A single response may be incomplete, so
	// wait for several.
	if r.unmet++; r.unmet < patience {
		return nil
	}
	from := r.above[0].From
	n := from.Num - r.at
	r.counter(recordsMissing, n)
	r.s.host.Fault(fmt.Errorf("http_poll %s: the feed no longer has records that were read but "+
		"not delivered, at most %d",
		r.s.part.Name, n))
	handed := r.handedOut
	err := r.moveTo(from)
	r.handedOut = handed
	return err
}

var errIgnored = errors.New("the next page has the same records as the page before: the server " +
	"ignores the paging parameter; check `cursor` or `offset`, and `next`")

// patience is the number of consecutive responses without expected records (see the field unmet)
// after which these records count as missing at the server.
const patience = 3
