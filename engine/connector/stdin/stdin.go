// Package stdin implements the source that reads the standard input of the process.
//
// Standard input cannot be read a second time. If the process is killed, records that were read and
// not delivered are lost. A goroutine reads the input one buffer ahead. The source passes the
// records to an intake (package intake). The intake keeps them in memory until they are settled
// (delivered, dead-lettered or dropped). If the intake is full, the source stops reading, and the
// program that writes to the pipe must wait (backpressure).
package stdin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Options are the options of the source.
type Options struct {
	Delimiter string      `yaml:"delimiter" enum:"newline,nul" doc:"end of each record"`
	MaxRecord stream.Size `yaml:"max_record" doc:"a longer record is cut into pieces"`
	Memory    stream.Size `yaml:"memory" doc:"bytes that may wait for delivery; then reading pauses"`
}

// DefaultOptions returns options that read lines.
func DefaultOptions() *Options {
	return &Options{Delimiter: intake.ByNewline, MaxRecord: 1 << 20, Memory: intake.DefaultMaxBytes}
}

// Validate returns an error for an invalid option.
func (o *Options) Validate() error {
	return errors.Join(
		intake.CheckDelimiter("delimiter", o.Delimiter), intake.CheckSizes("memory", o.MaxRecord, o.Memory),
	)
}

// Exclusive implements stream.ExclusiveUser. No other component may use standard input.
func (*Options) Exclusive() []string { return []string{"standard input"} }

// Source returns the component stdin for the process's standard input.
func Source() stream.Component { return From(os.Stdin) }

// From returns the component stdin for the reader r, for programs and tests. All instances of the
// component share r: a new instance continues after the bytes that the previous one has read.
func From(r io.Reader) stream.Component {
	in := &input{reader: r, chunks: make(chan chunk)}
	return stream.NewComponent(stream.SourceRole, "stdin", DefaultOptions,
		func(o Options, h stream.Host) (*source, error) { return newSource(o, in, h) })
}

// readSize is the maximum number of bytes of one read.
const readSize = 256 << 10

// input reads from a reader. It has a goroutine of its own for this, because a blocked Read cannot
// be canceled. The goroutine ends at the end of the reader or after a read error. It reads a chunk
// only after a source has received the previous chunk.
type input struct {
	reader io.Reader
	start  sync.Once
	chunks chan chunk

	mu     sync.Mutex // held by the source that reads
	cutter *intake.Cutter
	of     Options // options of cutter
	ended  bool
	failed error // the read error; nil at the end of the data
}

// adopt gives the options o to the input. It replaces the cutter, which splits the input into
// records, and keeps the bytes of an incomplete record.
func (in *input) adopt(o Options) {
	if in.cutter != nil && in.of == o {
		return
	}
	before := in.cutter
	in.of = o
	in.cutter = intake.NewCutter(int(o.MaxRecord), intake.Delimiter(o.Delimiter), readSize)
	if before != nil {
		in.cutter.Keep(before)
	}
}

// chunk is the result of one read.
type chunk struct {
	data []byte
	err  error
}

// pump reads chunks and sends them to the sources, until the end of the reader or a read error.
func (in *input) pump(context.Context) error {
	for {
		data := make([]byte, readSize)
		n, err := in.reader.Read(data)
		in.chunks <- chunk{data[:n], err}
		if err != nil {
			return nil
		}
	}
}

type source struct {
	*intake.Intake
	o    Options
	in   *input
	host stream.Host
}

func newSource(o Options, in *input, h stream.Host) (*source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	waiting, err := intake.New(intake.Options{
		Name: "standard input", MaxBytes: int64(o.Memory),
	}, h)
	if err != nil {
		return nil, err
	}
	s := &source{Intake: waiting, o: o, in: in, host: h}
	h.Count("records_cut", 0)
	h.Go("stdin/read", s.run)
	return s, nil
}

// run submits records to the routes until the input ends or ctx is done. While all routes drain, it
// submits none. It is not restarted after an error, because the input cannot be read again.
func (s *source) run(ctx context.Context) error {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.in.adopt(s.o)
	s.in.start.Do(func() { supervise.NewGroup(context.Background()).Go("stdin", s.in.pump) })
	for !s.in.ended {
		if err := s.Accepting(ctx); err != nil {
			return supervise.Final(errInterrupted)
		}
		if s.take(ctx) != nil && s.in.ended {
			return supervise.Final(errStopped)
		}
	}
	s.End()
	if s.in.failed == nil {
		return nil
	}
	<-ctx.Done() // first deliver the records before the error
	return supervise.Final(fmt.Errorf("standard input: %w", s.in.failed))
}

var (
	errInterrupted = errors.New("standard input had not ended: the rest was not delivered")
	errStopped     = errors.New("the last records of standard input were not delivered")
)

// take submits records until the input ends, all routes drain, or ctx is done. If it cannot submit
// records, it counts them as lost and returns an error.
func (s *source) take(ctx context.Context) error {
	defer s.Producer()()
	for !s.in.ended {
		var c chunk
		select {
		case c = <-s.in.chunks:
		case <-s.Draining():
			return nil
		case <-ctx.Done():
			return nil
		}
		records := s.in.cutter.Write(c.data)
		s.in.ended = c.err != nil
		if s.in.ended && !errors.Is(c.err, io.EOF) {
			s.in.failed = c.err
		}
		err := s.Add(ctx, records)
		s.host.Count("records_cut", s.in.cutter.Long())
		if s.in.ended { // the last record may have no delimiter
			err = cmp.Or(err, s.Add(ctx, s.in.cutter.End()))
		}
		if err != nil {
			return err // ctx is done
		}
	}
	return nil
}
