// Package stdin implements the source that reads the process's standard input.
//
// Standard input cannot be read again, so there are no positions. If the process is killed, records
// that were read and not delivered are lost. One goroutine of the process reads ahead by one
// buffer. The source passes its records to an intake. A full intake pushes back on the writer of
// the pipe.
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

// Validate returns an error for wrong options.
func (o *Options) Validate() error {
	return errors.Join(
		intake.CheckDelimiter("delimiter", o.Delimiter), intake.CheckSizes(o.MaxRecord, o.Memory),
	)
}

// Exclusive implements stream.ExclusiveUser.
func (*Options) Exclusive() []string { return []string{"standard input"} }

// Source returns the component stdin for the process's standard input.
func Source() stream.Component { return From(os.Stdin) }

// From returns the component stdin for another reader, for programs and tests. All instances share
// the reader. A new instance continues where the previous one stopped.
func From(r io.Reader) stream.Component {
	in := &input{reader: r, chunks: make(chan chunk)}
	return stream.NewComponent(stream.SourceRole, "stdin", DefaultOptions,
		func(o Options, h stream.Host) (*source, error) { return newSource(o, in, h) })
}

// readSize is the size of a read.
const readSize = 256 << 10

// input reads a reader in a goroutine of its own, because a blocked Read cannot be canceled. The
// goroutine ends with the reader. It reads the next chunk when a source has received the previous
// one.
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

// adopt replaces the cutter by one for o. It keeps the bytes of an incomplete record.
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

// pump reads until the reader ends.
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
	h.Go("stdin/read", s.run)
	return s, nil
}

// run submits records to the routes until the input or the routes end.
func (s *source) run(ctx context.Context) error {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.in.adopt(s.o)
	s.in.start.Do(func() { supervise.NewGroup(context.Background()).Go("stdin", s.in.pump) })
	for !s.in.ended {
		if err := s.Accepting(ctx); err != nil {
			return &inputError{errInterrupted}
		}
		if s.take(ctx) != nil && s.in.ended {
			return &inputError{errStopped}
		}
	}
	s.End()
	if s.in.failed == nil {
		return nil
	}
	<-ctx.Done() // deliver the records before the error first
	return &inputError{fmt.Errorf("standard input: %w", s.in.failed)}
}

var (
	errInterrupted = errors.New("standard input had not ended: the rest was not delivered")
	errStopped     = errors.New("the last records of standard input were not delivered")
)

// take submits records until the input ends, the routes drain, or ctx is done. It returns an error
// if records could not be submitted. They count as lost.
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

// inputError ends the source permanently, because a restart could not read the input again.
type inputError struct{ err error }

// Error implements error.
func (e *inputError) Error() string { return e.err.Error() }

// Unwrap returns the cause, and ErrStop to tell the supervisor not to restart the source.
func (e *inputError) Unwrap() []error { return []error{e.err, supervise.ErrStop} }
