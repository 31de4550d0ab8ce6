// Package file holds the sink that appends records to one file, or to one after the other, exactly
// once.
//
// The file has one lane, which is ordered: batches take effect in the order of their places. One
// goroutine writes what is ready, a second makes it durable, so that while one fsync runs the next
// group is written; every batch is answered with the file's identity and length after it
// ([flow.Report].Place), which the engine saves in the checkpoint entry of the batch's settle. Open
// truncates to the place it is given, so that what a kill left unsettled is written once.
//
// The sink owns its file while it is open, held by a lock file beside it: who else writes into it
// loses what he wrote at the next start. With rotate that holds for the numbered files beside it,
// too, until they are settled. It never retries an fsync, and without rotate it never renames or
// removes a file.
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// The formats of a record in the file.
const (
	NDJSON = "ndjson" // a JSON object a line: the fields of a parsed record, else {"message":"..."}
	Raw    = "raw"    // the record's bytes, as they were read, and a line end
)

// When a delivered batch is durable.
const (
	SyncAck      = "ack"      // before it is answered: one fsync for each group
	SyncInterval = "interval" // at the latest a second later, and before the route ends
)

// inFlight is how many batches may be in hand at once: enough to write a group while another one is
// made durable.
const inFlight = 128

// Options of the sink.
type Options struct {
	Path   string `yaml:"path" path:"true" alone:"true" required:"true" doc:"appended to; made where missing, its folders with 0700"`
	Format string `yaml:"format" enum:"ndjson,raw" doc:"ndjson: a JSON object a line; raw: the record's bytes and a line end"`
	Fsync  string `yaml:"fsync" enum:"ack,interval" doc:"when a delivered batch is durable: before it is acked, or at most 1 s later"`
	Rotate Rotate `yaml:"rotate" doc:"when to begin a new file"`
	Mode   string `yaml:"mode" doc:"permissions of files that it makes, in octal"`
}

// DefaultOptions write JSON lines, because they say what a record is in every case, and ack what is
// durable.
func DefaultOptions() *Options { return &Options{Format: NDJSON, Fsync: SyncAck, Mode: "0600"} }

// mode is Mode as a number.
func (o *Options) mode() fs.FileMode {
	n, _ := strconv.ParseUint(o.Mode, 8, 9)
	return fs.FileMode(cmp.Or(n, 0o600))
}

// Validate says which option is wrong.
func (o *Options) Validate() error {
	if o.Path == "" {
		return &stream.OptionError{Key: "path", Err: errors.New("missing: the file to append to")}
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	if n, err := strconv.ParseUint(o.Mode, 8, 9); o.Mode != "" && (err != nil || n&0o600 != 0o600) {
		err := fmt.Errorf("%q is no mode of a file; write three octal digits of which the first is 6 or 7, such as 0640", o.Mode)
		return &stream.OptionError{Key: "mode", Err: err}
	}
	return o.Rotate.validate()
}

// Component is the sink's line in the list of components.
func Component() stream.Component {
	return stream.Component{
		Role:    stream.SinkRole,
		Name:    "file",
		Options: func() any { return DefaultOptions() },
		New:     func(o any, h stream.Host) (any, error) { return New(*o.(*Options), h) },
	}
}

// Sink appends to one file. It implements stream.Sink, Encoder and AppendSink.
type Sink struct {
	o     Options
	host  stream.Host
	dir   vfs.Dir
	lock  io.Closer
	lane  *lane
	start string
}

// New returns a sink that has touched nothing yet.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Sink{o: o, host: h}, nil
}

// Open locks the file and opens it, or makes it (0600, in folders that it makes with 0700). With
// o.Place it is truncated to it; a file that is another one or shorter is refused. Without, an
// existing file is kept whole; where its last line has no end it gets one, so that the first record
// does not grow together with it.
func (s *Sink) Open(_ context.Context, o stream.SinkOptions) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%q: %w", s.o.Path, err), s.Close())
		}
	}()
	folder, name := filepath.Split(filepath.Clean(s.o.Path))
	if s.dir, err = s.host.FS().MakeDir(filepath.Clean(folder), 0o700); err != nil {
		return err
	}
	who := fmt.Sprintf("penstock, pipeline %s, route %s", o.Pipeline, o.Route)
	if s.lock, err = s.dir.Lock("."+name+".lock", who); err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return fmt.Errorf("another route or process writes to it; give each a file of its own: %w", err)
		}
		return err
	}
	file, at, err := openAt(s.dir, name, o.Place, s.o.Rotate.Bytes > 0, s.o.mode())
	if err != nil {
		return err
	}
	s.start = at.String()
	s.lane = newLane(s, name, file, at)
	s.host.Go("file writer", s.lane.runWriter)
	s.host.Go("file syncer", s.lane.runSyncer)
	o.Lanes([]stream.Lane{{Name: s.o.Path, Worker: s.lane, Limits: limits}})
	return nil
}

// StartPlace implements stream.AppendSink.
func (s *Sink) StartPlace() string { return s.start }

// Encodes implements stream.Encoder.
func (s *Sink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. A raw batch of which nothing was changed is written from its
// own bytes.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	if s.o.Format == NDJSON {
		return ndjson.Append(dst, b), nil
	}
	if _, whole := b.Whole(); whole {
		return nil, nil
	}
	return b.AppendRaw(dst), nil
}

// Sync implements stream.AppendSink: all that was delivered is durable when it returns nil. An
// error is for good: it is not known what the disk holds of the last second, so that the route has
// to stop and say so.
func (s *Sink) Sync(context.Context) error {
	if s.lane == nil {
		return nil
	}
	return s.lane.sync()
}

// Close makes durable what is not yet, and frees the file and its lock.
func (s *Sink) Close() error {
	var errs []error
	if s.lane != nil {
		errs = append(errs, s.lane.close())
	}
	for _, c := range []io.Closer{s.lock, s.dir} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	s.lane, s.lock, s.dir = nil, nil, nil
	return errors.Join(errs...)
}
