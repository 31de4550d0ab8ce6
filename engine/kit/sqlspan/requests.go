package sqlspan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// RequestFormat is the format of a ledger for requests that several processes may receive
// ([stream.RequestSource]). Each request is a partition. Its row in the marks table, its mark, is
// also a lock: a transaction inserts or locks the mark before it stores any range of the request.
// Transactions that store ranges of the same request therefore wait for each other, and each of
// them sees the ranges that are already stored. The name of a mark ends with the id of the process
// that wrote it last. Prune uses this id.
const RequestFormat = 3

// Limits of Load in a ledger of RequestFormat.
const (
	// maxRequests is the maximum number of requests that Load returns. It returns the most recent
	// ones. If a batch has an older request, the batch's claims find it in the ledger.
	maxRequests = 128 << 10
	// maxExpired is the number of expired requests that Load deletes in one transaction.
	maxExpired = 1000
	// expiredFor is the time after which Load deletes an expired request. A request expires when it
	// is older than the time keep of the ledger. During expiredFor, an open transaction of another
	// process may still need the request.
	expiredFor = time.Hour
	// expireTime is the time after which Load ends this deletion, so that the route can start.
	expireTime = 5 * time.Second
)

// rowsOfTarget returns the value of the column route for the rows of a ledger of RequestFormat. The
// value depends on the route and on the table of the data. So two routes or two tables can have the
// same configured ledger: a request that one of them has stored does not count as stored for the
// other.
func rowsOfTarget(name, route, table string) string {
	sum := sha256.Sum256([]byte(route + "\x00" + table))
	return name + " " + hex.EncodeToString(sum[:8])
}

// fenceOf returns the key of a row in RoutesTable: the row with the epoch of a process. The
// parameter own is the id of the process.
func fenceOf(rows, own string) string { return rows + " " + own }

// writtenBy stands in the name of a mark, between the name of the request and the id of the process
// that wrote the mark last.
const writtenBy = " by "

// claims inserts or locks the marks of the requests in a batch (their rows in the marks table), in
// a ledger of RequestFormat.
type claims struct {
	l      *Ledger
	spans  []stream.Span
	parts  []string // distinct and sorted, so that two transactions lock in the same order
	insert []*Statement
	isNew  map[string]bool // requests without a mark before; with arrays, set by insert

	stored map[string][]stream.Range // stored ranges by request
}

// claim returns the claims for spans, which must all belong to requests. It returns nil if spans is
// empty.
func claim(l *Ledger, spans []stream.Span) *claims {
	if len(spans) == 0 {
		return nil
	}
	c := &claims{l: l, spans: spans, isNew: make(map[string]bool)}
	first := make(map[string]*stream.Span)
	for i := range spans {
		s := &spans[i]
		if f := first[s.Part.ID]; f == nil {
			c.parts = append(c.parts, s.Part.ID)
			first[s.Part.ID] = s
		} else if s.From.Compare(f.From) < 0 {
			first[s.Part.ID] = s
		}
	}
	slices.Sort(c.parts)
	rows := make([][]any, len(c.parts))
	for i, part := range c.parts {
		s := first[part]
		var end int64 // of the data that the mark covers
		if s.From == (stream.Position{}) {
			end = s.To.Num
		}
		rows[i] = []any{part, l.markName(s.Part), end, []byte{}}
	}
	c.insert = l.over(l.d.Claim, kindsOfMark, rows)
	if l.d.Arrays {
		var part string
		reading(c.insert, func() { c.isNew[part] = true }, &part)
	}
	return c
}

// markName returns the name to store in a partition's row of the marks table. This is the name of
// the partition, with characters replaced that the database cannot store. If the partition is a
// request, the id of this process follows.
func (l *Ledger) markName(p *stream.Partition) string {
	name := strings.ToValidUTF8(strings.ReplaceAll(p.Name, "\x00", ""), "\uFFFD")
	if l.ASCII.Load() {
		name = strings.Map(func(r rune) rune {
			if r > '~' {
				return '?'
			}
			return r
		}, name)
	}
	if l.keep > 0 && stream.IsRequest(p.ID) {
		name, _, _ = strings.Cut(name, writtenBy)
		name += writtenBy + l.own
	}
	return name
}

// partition divides spans into the spans of requests and those of other partitions.
func (l *Ledger) partition(spans []stream.Span) (others, requests []stream.Span) {
	if l.keep == 0 {
		return spans, nil
	}
	for i := range spans {
		if stream.IsRequest(spans[i].Part.ID) {
			requests = append(requests, spans[i])
		} else {
			others = append(others, spans[i])
		}
	}
	return others, requests
}

// resolve compares the spans of the requests with the stored ranges. missing has the ranges that
// are not stored. rows has those of them that need a row in the spans table. A range at the start
// of a new request needs no row: the request's mark was inserted just now, with the end of this
// range as the watermark. Call resolve after the statements in insert have run.
func (c *claims) resolve(ctx context.Context, s Session) (missing, rows []stream.Span, err error) {
	if !c.l.d.Arrays {
		for i, part := range c.parts {
			c.isNew[part] = c.insert[i].Affected > 0
		}
	}
	known := slices.DeleteFunc(slices.Clone(c.parts),
		func(part string) bool { return c.isNew[part] })
	if err := c.read(ctx, s, known); err != nil {
		return nil, nil, err
	}
	begun := make(map[string]bool)
	for i := range c.spans {
		span := c.spans[i]
		id := span.Part.ID
		if c.isNew[id] && !begun[id] && span.From == (stream.Position{}) {
			begun[id] = true
			missing = append(missing, span) // its mark was inserted
			continue
		}
		for _, r := range without(span.Range, c.stored[id]) {
			part := span
			part.Range = r
			missing, rows = append(missing, part), append(rows, part)
		}
	}
	return missing, rows, nil
}

// read reads the stored ranges of requests.
func (c *claims) read(ctx context.Context, s Session, parts []string) error {
	marks, rows, err := readParts(ctx, c.l, s, parts)
	if err != nil {
		return err
	}
	c.stored = make(map[string][]stream.Range, len(parts))
	for id, to := range marks {
		c.stored[id] = append(c.stored[id], stream.Range{To: to})
	}
	for _, r := range rows {
		c.stored[r.Part] = append(c.stored[r.Part], r.Range)
	}
	for _, ranges := range c.stored {
		slices.SortFunc(ranges, func(a, b stream.Range) int { return a.From.Compare(b.From) })
	}
	return nil
}

// without returns the parts of r that lie in none of the given ranges, which must be sorted.
func without(r stream.Range, ranges []stream.Range) (left []stream.Range) {
	for _, s := range ranges {
		if s.To.Compare(r.From) <= 0 || s.From.Compare(r.To) >= 0 {
			continue
		}
		if r.From.Compare(s.From) < 0 {
			left = append(left, stream.Range{From: r.From, To: s.From})
		}
		if r.From = s.To; r.From.Compare(r.To) >= 0 {
			return left
		}
	}
	return append(left, r)
}

// insertRows stores spans, and does not check whether the ledger already contains ranges of them.
// The transaction must have locked their partitions. For requests, it has locked their rows in the
// marks table. For other partitions, it has locked the epochs.
func insertRows(ctx context.Context, l *Ledger, s Session, spans []stream.Span) error {
	if len(spans) == 0 {
		return nil
	}
	return s.Run(ctx, l.entry(spans).insert...)
}

// remaining reports which records of b must be written if the ledger already contains a part of b.
// missing has the ranges that it lacks. If all kept records are missing, the result is None. If no
// kept record is missing, for example because b has none, it is Part. Otherwise the error is a
// [stream.Split] into the stored and the missing records.
func remaining(l *Ledger, b *stream.Batch, missing []stream.Span) (Presence, error) {
	ranges := make(map[string][]stream.Range)
	for i := range missing {
		id := missing[i].Part.ID
		ranges[id] = append(ranges[id], missing[i].Range)
	}
	var stored, left []int
	for i := range b.Records {
		r := &b.Records[i]
		covers := func(s stream.Range) bool {
			return s.From.Compare(r.Origin) < 0 && r.Origin.Compare(s.To) <= 0
		}
		switch {
		case r.State != stream.Kept:
		case slices.ContainsFunc(ranges[b.Spans[r.Span].Part.ID], covers):
			left = append(left, i)
		default:
			stored = append(stored, i)
		}
	}
	switch {
	case len(left) == 0:
		return Part, nil
	case len(stored) == 0:
		return None, nil
	}
	split := &stream.Split{Err: fmt.Errorf("another process has stored a part of the batch in the "+
		"ledger %q", l.Name)}
	split.Done = append(split.Done, stream.Piece(b.Pick(stored)))
	split.Rest = append(split.Rest, stream.Piece(b.Pick(left)))
	return Part, split
}

// judge returns the result of [Ledger.Enter] for b. own has the spans of partitions that only this
// process reads, and c has those of requests. judge combines the results of both, and stores the
// missing ranges of requests.
func judge(ctx context.Context, l *Ledger, s Session, b *stream.Batch, own *entry,
	c *claims) (Presence, error) {
	presence := None
	if own != nil {
		var err error
		if presence, err = own.judge(ctx, s); err != nil || c == nil {
			return presence, err
		}
	}
	missing, rows, err := c.resolve(ctx, s)
	if err != nil {
		return None, err
	}
	l.host.Count(duplicateRequests, c.duplicates(missing))
	overlap := !slices.EqualFunc(missing, c.spans, func(a, b stream.Span) bool {
		return a.Part == b.Part && a.Range == b.Range
	})
	if own != nil && presence == None {
		missing = append(missing, own.spans...)
	}
	if len(missing) == 0 {
		return All, nil
	}
	if presence != None || overlap {
		if presence, err = remaining(l, b, missing); err != nil {
			return presence, err
		}
	}
	return presence, insertRows(ctx, l, s, rows)
}

// duplicateRequests is the counter of requests that were already stored.
const duplicateRequests = "requests_duplicate"

// duplicates returns the number of requests of which no range is in missing.
func (c *claims) duplicates(missing []stream.Span) int64 {
	left := make(map[string]bool, len(missing))
	for i := range missing {
		left[missing[i].Part.ID] = true
	}
	return int64(len(c.parts) - len(left))
}

// adopt converts a ledger from Format to RequestFormat, and keeps its rows. Versions of penstock
// that do not know RequestFormat refuse the ledger from then on.
func adopt(ctx context.Context, l *Ledger, s Session) error {
	return convert(ctx, l, s, RequestFormat, func() error {
		err := s.Run(ctx, append(move(l, l.Name, ""), l.statement(l.Name, requestText))...)
		var marks []stream.Mark
		if err == nil {
			marks, err = l.read(ctx, s)
		}
		if err == nil {
			err = l.fold(ctx, s, marks) // each request with spans needs a mark
		}
		if err != nil {
			return fmt.Errorf("convert the ledger to format %d: %w", RequestFormat, err)
		}
		return nil
	})
}

// expire deletes the requests that expired more than expiredFor ago. These include requests of
// other processes, because these processes may never start again. When it has run for expireTime,
// it leaves the remaining requests to later starts.
func expire(ctx context.Context, l *Ledger, s Session) error {
	begun := time.Now()
	bound := requestName(begun.Add(-l.keep - expiredFor))
	for last := ""; ; {
		var ids []string
		text := &Statement{SQL: l.d.shared(expiredText + l.d.SkipLocked),
			Args: []any{l.route, last, bound},
			Dest: []any{&last}, Row: func() { ids = append(ids, last) }}
		err := s.Begin(ctx, text)
		if err == nil && len(ids) > 0 {
			err = s.Run(ctx, pruneRequests(l, ids)...)
		}
		if err == nil {
			err = s.Commit(ctx)
		}
		if err != nil {
			return fmt.Errorf("delete expired requests: %w", err)
		}
		if len(ids) < maxExpired || time.Since(begun) >= expireTime {
			return nil
		}
	}
}

// readRequests is like read, but returns at most maxRequests requests.
func readRequests(ctx context.Context, l *Ledger, s Session) ([]stream.Mark, error) {
	marks, rows, err := readRows(ctx, l, s, marksText+" AND part NOT LIKE '"+requests+"'",
		marksText+" AND part LIKE '"+requests+"' ORDER BY name DESC LIMIT "+
			strconv.Itoa(maxRequests))
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(marks))
	for i := range marks {
		known[marks[i].Part.ID] = true
	}
	rows = slices.DeleteFunc(rows, // each request with spans has a mark
		func(r Row) bool { return stream.IsRequest(r.Part) && !known[r.Part] })
	return Fold(marks, rows)
}

// requests is the pattern of the ids of requests.
const requests = stream.RequestPrefix + "%"

// arrival is the beginning of the name of a mark, if the time at which its request arrived is
// known.
const arrival = "request of "

// requestName returns the name that the row of a request has in the marks table, for a request that
// arrived at the time t. The caller appends writtenBy and the id of the process.
func requestName(t time.Time) string { return arrival + t.UTC().Format(time.RFC3339) }

// pruneRequests returns the statements that delete requests with the given ids from the ledger.
// They delete a request only if it has expired, or if this process wrote its mark last. Other
// processes still need the other requests.
func pruneRequests(l *Ledger, ids []string) []*Statement {
	expired := requestName(time.Now().Add(-l.keep))
	rows := make([][]any, len(ids))
	for i, id := range slices.Sorted(slices.Values(ids)) { // the order of claims
		rows[i] = []any{id, "%" + writtenBy + l.own, expired}
	}
	return append(l.over(l.d.PruneRequests, kindsOfPrune, rows),
		l.overParts(l.d.pruneOrphans, ids)...)
}
