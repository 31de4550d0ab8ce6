// Package file implements the sink that appends each record exactly once to a file, or to a
// sequence of files.
//
// The file has one ordered lane. One goroutine writes batches, and a second goroutine calls fsync,
// so that the next group of batches is written during an fsync. The answer to each batch contains a
// resume token ([stream.Report].ResumeToken): the identity of the file, and its length after the
// batch. The engine saves the token in the same checkpoint entry as the progress of the batch.
// After a kill, Open truncates the file to the length in the saved token. Batches after it are
// delivered again, and are not duplicated.
//
// While the file is open, a lock file beside it prevents a second sink from using it. Other
// programs must not write to the file: bytes that they append are removed at the next start. The
// sink never repeats a failed fsync. With the option rotate, full files get numbered names. If the
// checkpoint names an older file, Open removes the newer ones, and gives that file its old name
// back. Without rotate, the sink never renames or removes an existing file.
//
// # Terms
//
// A delivery is a call of Deliver that has not returned. Deliveries that are written together are a
// group. To answer a delivery is to make its call return. A place is the identity of a file and an
// offset in it: a resume token is the text of a place.
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
	// a JSON object per line: the fields of a parsed record, else {"message":"..."}
	NDJSON = "ndjson"
	Raw    = "raw" // the record's original bytes and a line end
)

// The values of the option fsync: the time at which a delivered batch becomes durable.
const (
	SyncAck      = "ack"      // before it is acknowledged; one fsync for each group of batches
	SyncInterval = "interval" // about 1 s after the acknowledgement, and before the route ends
)

// inFlight is the maximum number of in-flight batches. It is enough to write one group of
// batches while the previous group is synced.
const inFlight = 128

// Options are the options of the sink.
type Options struct {
	Path   string `yaml:"path" path:"true" alone:"true" required:"true" doc:"file to append to; created if missing (directories 0700)"`
	Format string `yaml:"format" enum:"ndjson,raw" doc:"ndjson: one JSON object per line; raw: the record's bytes and a line end"`
	Fsync  string `yaml:"fsync" enum:"ack,interval" doc:"when to sync: before a batch is acknowledged, or every second"`
	Rotate Rotate `yaml:"rotate" doc:"when to start a new file"`
	Mode   string `yaml:"mode" doc:"mode of created files, in octal"`
}

// DefaultOptions returns the default options: JSON lines, which represent every record
// unambiguously, and batches that are durable before they are acknowledged.
func DefaultOptions() *Options { return &Options{Format: NDJSON, Fsync: SyncAck, Mode: "0600"} }

// mode returns Mode as a number.
func (o *Options) mode() fs.FileMode {
	n, _ := strconv.ParseUint(o.Mode, 8, 9)
	return fs.FileMode(cmp.Or(n, 0o600))
}

// WritesFile implements stream.FileWriter.
func (o *Options) WritesFile() string { return o.Path }

// Validate returns an error for the first invalid option.
func (o *Options) Validate() error {
	if o.Path == "" {
		return stream.OptionErrorf("path", "missing: the file to append to")
	}
	if err := stream.CheckEnums(o); err != nil {
		return err
	}
	if n, err := strconv.ParseUint(o.Mode, 8, 9); o.Mode != "" && (err != nil || n&0o600 != 0o600) {
		return stream.OptionErrorf("mode", "%q is not the mode of a file; write three octal "+
			"digits with 6 or 7 first, such as 0640", o.Mode)
	}
	return o.Rotate.validate()
}

// Component returns the component for the registry.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "file", DefaultOptions, New)
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

// New returns a sink. It does not open the file.
func New(o Options, h stream.Host) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	for _, counter := range []string{"bytes_written", "rotations", "syncs"} {
		h.Count(counter, 0)
	}
	return &Sink{o: o, host: h}, nil
}

// Open locks the file and opens it. If the file is missing, Open creates it with the configured
// mode; it creates missing directories with mode 0700.
//
// If o.ResumeToken is set, Open truncates the file to the length in the token. If the token is of
// another file, for example after logrotate, Open looks for that file in the same directory and
// truncates it instead. The sink then appends to the file at the configured path. Open returns an
// error if it does not find the file of the token, or if that file is shorter. But if the length in
// the token is 0, Open creates a missing file.
//
// If o.ResumeToken is not set, Open keeps the content of the file. It adds a line end if the last
// line has none, so that the first record begins a new line.
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
			return fmt.Errorf("another route or process writes to it; give each a separate "+
				"file: %w", err)
		}
		return err
	}
	file, at, err := openAt(s.dir, name, o.ResumeToken, s.o.Rotate.Bytes > 0, s.o.mode())
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

// StartToken implements stream.AppendSink.
func (s *Sink) StartToken() string { return s.start }

// Encodes implements stream.Encoder.
func (s *Sink) Encodes() stream.Encoding { return stream.EncodeAll }

// Encode implements stream.Encoder. It appends nothing for an unchanged raw batch, which is written
// from its own bytes.
func (s *Sink) Encode(dst []byte, b *stream.Batch) ([]byte, error) {
	if s.o.Format == NDJSON {
		return ndjson.Append(dst, b), nil
	}
	if _, whole := b.Whole(); whole {
		return nil, nil
	}
	return b.AppendRaw(dst), nil
}

// Sync implements stream.AppendSink. When it returns nil, all delivered batches are durable. An
// error is permanent, because bytes of acknowledged batches may be lost. The route must stop and
// report it.
func (s *Sink) Sync(context.Context) error {
	if s.lane == nil {
		return nil
	}
	return s.lane.sync()
}

// Close syncs and closes the file, and releases its lock.
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
