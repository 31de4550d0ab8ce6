// Package audit checks that a route has delivered its data. It reads the source again, and compares
// the data with the checkpoint and with the contents of the sink.
//
// [Run] passes the data of the source through the processors of the route. Data is settled if it is
// part of the progress of the route. The sink must contain every settled record that the processors
// keep, unless the record is a dead letter that was not replayed. Run changes no data: the source
// gets a read-only file system, and the sink is opened for an audit (stream.AuditedSink), which
// writes at most to a temporary table or file.
//
// The route may be running. Run therefore reads the progress first, from the checkpoint or from the
// sink's own database (its ledger), and the contents of the sink last. So all records that count as
// settled are already in the sink when Run reads it.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/internal/trial"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// Options of an audit.
type Options struct {
	State    string // state directory
	Pipeline *config.Pipeline
	Route    *config.Route
	FS       vfs.FS
	Log      *slog.Logger
}

// Kind is the kind of a difference.
type Kind string

// Values of Kind.
const (
	Missing     Kind = "missing"     // the sink does not have a settled record
	Extra       Kind = "extra"       // the sink has more copies of a record than the source
	Undelivered Kind = "undelivered" // no process is running, and the source has unsettled data
	Unknown     Kind = "unknown"     // settled in the checkpoint, but not in the sink's ledger
)

// Difference is a record, or a range of a partition, in which source, checkpoint and sink differ.
type Difference struct {
	Kind      Kind
	Partition stream.Partition
	Range     stream.Range // for Undelivered and Unknown
	// Records is the number of missing or extra copies of the record, for the kinds Missing and
	// Extra. For Undelivered, the first Difference of a partition has the number of all its
	// unsettled records, and the others have 0. For Unknown, Records is 0.
	Records  int64
	RecordID string // for Missing and Extra
}

// Report is the result of an audit. Its JSON form is a part of the line of `penstock audit --json`.
type Report struct {
	Running     bool  `json:"running"` // a process is using the state directory
	Partitions  int64 `json:"partitions"`
	NotInSource int64 `json:"partitions_not_in_source"` // partitions with progress
	Records     int64 `json:"records"`                  // read again from the source
	Unsettled   int64 `json:"unsettled"`                // not settled yet
	Expected    int64 `json:"expected"`                 // records that must be in the sink
	Dead        int64 `json:"dead"`                     // dead letters that were not replayed
	Dropped     int64 `json:"dropped"`                  // dropped by processors
	// Compared reports whether the sink was compared. It is false if the sink cannot be read, so
	// that only source and checkpoint were compared.
	Compared    bool  `json:"sink_compared"`
	Differences int64 `json:"differences"`
}

// NotAuditedError means that the source of a route cannot be read again.
type NotAuditedError struct{ Why string }

// Error returns the reason.
func (e *NotAuditedError) Error() string { return "cannot be audited: " + e.Why }

// run is the state of a running audit.
type run struct {
	o      Options
	report Report
	found  func(Difference) error

	local   progress        // progress in the checkpoint
	settled progress        // progress in the sink's ledger or, without a ledger, in the checkpoint
	place   string          // resume token of the sink's output; "" if there is none
	letters map[string]bool // ids of dead letters that were not replayed
	reread  stream.Reread
	parts   map[string]*part
}

// part is a partition that the audit has read.
type part struct {
	partition stream.Partition
	settled   []stream.Range
	open      []stream.Range // unsettled ranges
	records   int64          // number of records in these ranges
}

// Run audits a route. It calls found for each difference.
func Run(ctx context.Context, o Options, found func(Difference) error) (report Report, err error) {
	r := &run{o: o, local: progress{}, parts: map[string]*part{}}
	r.found = func(d Difference) error {
		r.report.Differences++
		return found(d)
	}
	source := o.Pipeline.Source
	again, ok := source.Options.(stream.Rereadable)
	if !ok {
		why := fmt.Sprintf("source %s cannot be read a second time", source.Component.Name)
		return report, &NotAuditedError{why}
	}
	if r.reread, err = again.Reread(); err != nil {
		return report, &NotAuditedError{err.Error()}
	}
	if err := r.readState(); err != nil {
		return report, err
	}
	h := &host{log: o.Log, fs: readOnly{o.FS}, route: o.Pipeline.Name + "/" + o.Route.Name}
	sink, err := r.openSink(ctx, h)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, sink.Close()) }()
	if err := r.takeLedger(ctx, sink); err != nil {
		return report, err
	}
	chain, err := trial.New(o.Route, o.Log, o.FS)
	if err != nil {
		return report, err
	}
	err = chain.Run(ctx, func(ctx context.Context) error {
		return r.readSource(ctx, h, chain, sink)
	})
	if err == nil {
		err = r.compare(ctx, sink)
	}
	return r.report, err
}

// openSink opens the sink for an audit, and sets Compared in the report. If the sink is not a
// stream.AuditedSink, it returns a value of type unreadable.
func (r *run) openSink(ctx context.Context, h *host) (stream.Audit, error) {
	made, err := pipeline.Construct[stream.Sink](r.o.Route.Sink, h)
	if err != nil {
		return nil, err
	}
	sink, ok := made.(stream.AuditedSink)
	if r.report.Compared = ok; !ok {
		return unreadable{}, nil
	}
	return sink.Audit(ctx, stream.SinkOptions{
		Pipeline: r.o.Pipeline.Name, Route: r.o.Route.Name, ResumeToken: r.place,
	})
}

// readState reads the checkpoint and the dead letters, and checks whether a process is running.
func (r *run) readState() error {
	dir, err := r.o.FS.OpenDir(r.o.State)
	if errors.Is(err, fs.ErrNotExist) {
		return r.readLetters(nil)
	}
	if err != nil {
		return fmt.Errorf("state directory %s: %w", r.o.State, err)
	}
	err = errors.Join(r.readMarks(dir), dir.Close())
	if err != nil {
		return fmt.Errorf("state directory %s: %w", r.o.State, err)
	}
	return nil
}

func (r *run) readMarks(dir vfs.Dir) error {
	lock, err := dir.Lock(pipeline.LockName, fmt.Sprintf("penstock audit, process %d", os.Getpid()))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		r.report.Running = true
	case err != nil:
		return err
	default:
		if err := lock.Close(); err != nil {
			return err
		}
	}
	snap, damage, err := checkpoint.Read(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && damage.Damage != "" && !r.report.Running {
		return fmt.Errorf("%s is damaged: %s", damage.File, damage.Damage)
	}
	if snap == nil {
		return r.readLetters(nil)
	}
	key := r.o.Pipeline.Name + "/" + r.o.Route.Name
	var replayed []string
	upper := key + checkpoint.BootMark + pipeline.Boot()
	for _, layer := range []string{key, upper} { // the upper layer takes precedence
		for _, s := range snap.Routes {
			if s.Route != layer {
				continue
			}
			for _, m := range s.Marks {
				if !deadletter.IsPartition(m.Part.ID) {
					r.local[m.Part.ID] = m
				} else if m.Watermark.Num > 0 {
					replayed = append(replayed, m.Part.ID)
				}
			}
			r.place = tokenFor(r.o.Route.Sink.Options, s.Places, r.place)
		}
	}
	return r.readLetters(replayed)
}

// tokenFor returns the resume token of a sink's output in tokens, which is keyed by the name of the
// output. If there is none, it returns other. A token of another output, which remains until the
// next run if the config has a new path, is used only if the sink's options name no file.
func tokenFor(options any, tokens map[string]string, other string) string {
	if w, ok := options.(stream.FileWriter); ok {
		return cmp.Or(tokens[w.WritesFile()], other)
	}
	for _, token := range tokens {
		other = token
	}
	return other
}

// readLetters collects in r.letters the ids of records that are still dead: no replay has settled
// their dead letters. A replay delivers each letter as a partition of its own. replayed has the ids
// of the partitions that replays have settled.
//
// If a replayed record is refused again, a second letter is written. Its id begins with the
// partition id of the first letter. For such a letter, readLetters keeps the id of the original
// record.
func (r *run) readLetters(replayed []string) error {
	done := make(map[string]bool, len(replayed))
	for _, id := range replayed {
		done[id] = true
	}
	r.letters = map[string]bool{}
	path := pipeline.LettersPath(*r.o.Pipeline, *r.o.Route)
	origins := map[string]string{} // ids of original records, by the partitions of their letters
	_, err := deadletter.Each(r.o.FS, path, func(e *deadletter.Entry) error {
		partition, _, _ := strings.Cut(e.ID, "@")
		origin := cmp.Or(origins[partition], e.ID)
		origins[deadletter.PartitionOf(e.ID)] = origin
		if !done[deadletter.PartitionOf(e.ID)] {
			r.letters[origin] = true
		}
		return nil
	})
	return err
}

// takeLedger uses the progress in the sink's ledger, if the sink has one, instead of that in the
// checkpoint. It reports ranges that are settled according to the checkpoint but not according to
// the ledger.
func (r *run) takeLedger(ctx context.Context, sink stream.Audit) error {
	marks, ok, err := sink.Ledger(ctx)
	if err != nil {
		return fmt.Errorf("sink %s: %w", r.o.Route.Sink.Component.Name, err)
	}
	if r.settled = maps.Clone(r.local); !ok {
		return nil
	}
	r.settled = progress{}
	for _, m := range marks {
		r.settled[m.Part.ID] = m
	}
	for id, m := range r.local {
		held := settled(r.settled[id])
		for _, s := range settled(m) {
			for _, lacks := range without(s, held) {
				d := Difference{Kind: Unknown, Partition: m.Part, Range: lacks}
				if err := r.found(d); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// part returns the entry of a partition, and creates it if there is none. A partition without
// stored progress counts as unsettled, with one exception: if the source has finished its file (for
// example renamed it), everything was settled before, and the partition counts as settled.
func (r *run) part(p *stream.Partition) *part {
	out := r.parts[p.ID]
	if out == nil {
		m, known := r.settled[p.ID]
		_, local := r.local[p.ID]
		out = &part{partition: *p, settled: settled(m)}
		if !known && !local && r.reread.Finished != nil && r.reread.Finished(p.Name) {
			out.settled = []stream.Range{{To: everything}}
		}
		r.parts[p.ID] = out
		r.report.Partitions++
	}
	return out
}

// compare reports unsettled ranges, and differences between the expected records and the sink.
func (r *run) compare(ctx context.Context, sink stream.Audit) error {
	for _, p := range slices.SortedFunc(maps.Values(r.parts), byName) {
		for i, open := range p.open {
			if r.report.Running {
				break
			}
			d := Difference{Kind: Undelivered, Partition: p.partition, Range: open}
			if i == 0 {
				d.Records = p.records
			}
			if err := r.found(d); err != nil {
				return err
			}
		}
	}
	for id := range r.settled {
		if r.parts[id] == nil && !deadletter.IsPartition(id) && !strings.HasSuffix(id, "~late") {
			r.report.NotInSource++
		}
	}
	return sink.Compare(ctx, func(d stream.AuditDifference) error {
		if d.Missing < 0 && r.report.Running {
			return nil // equal records may have been delivered since
		}
		id, _, _ := strings.Cut(d.RecordID, "@")
		out := Difference{Kind: Missing, RecordID: d.RecordID, Records: d.Missing}
		if p := r.parts[id]; p != nil {
			out.Partition = p.partition
		}
		if d.Missing < 0 {
			out.Kind, out.Records = Extra, -d.Missing
		}
		return r.found(out)
	})
}

func byName(a, b *part) int {
	return cmp.Or(cmp.Compare(a.partition.Name, b.partition.Name),
		cmp.Compare(a.partition.ID, b.partition.ID))
}

// unreadable is the stream.Audit of a sink that cannot be read.
type unreadable struct{}

func (unreadable) Ledger(context.Context) ([]stream.Mark, bool, error) { return nil, false, nil }
func (unreadable) Expect(context.Context, *stream.Batch) error         { return nil }
func (unreadable) Compare(context.Context, func(stream.AuditDifference) error) error {
	return nil
}
func (unreadable) Close() error { return nil }
