package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/engine/kit/otlplog"
)

// service describes LogsService. For clients, Export is a unary call. The server declares it as a
// stream, because the handler of a stream runs before the message is read, and can reserve memory
// for the message.
func (s *Server) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.logs.v1.LogsService",
		Metadata:    "opentelemetry/proto/collector/logs/v1/logs_service.proto",
		Streams: []grpc.StreamDesc{{
			StreamName: "Export", ClientStreams: true,
			Handler: func(_ any, call grpc.ServerStream) error { return s.export(call) },
		}},
	}
}

// rawCodec passes messages on unchanged. export parses them, with its own limits.
type rawCodec struct{}

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return proto.Name }

type endKey struct{}

// withEnd returns a context for a call. The function that end returns cancels this context.
func withEnd(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, endKey{}, cancel), nil
}

// end returns the function that cancels the context of a call, so that a blocked read of its
// message fails.
func end(call grpc.ServerStream) context.CancelCauseFunc {
	return call.Context().Value(endKey{}).(context.CancelCauseFunc)
}

var errSlow = errors.New("the message came too slowly")

// export handles one request. It reads the message, and responds when all routes have settled the
// records (delivered, dead-lettered or dropped them) or, with ack: buffered, when they are on disk.
// If the source stops earlier, the client gets the same answer as at the deadline.
func (s *Server) export(call grpc.ServerStream) error {
	s.host.Count("requests", 1)
	if !s.authorized(call.Context()) {
		return status.Error(codes.Unauthenticated,
			"the token is missing or wrong; send the header authorization: Bearer TOKEN")
	}
	ctx, cancel := s.WithDeadline(call.Context())
	defer cancel()
	ctx, done := s.running.begin(ctx)
	defer done()
	room, err := s.Admit(ctx, int64(s.o.MaxMessage)) // for a message of maximum size
	if err != nil {
		return s.busy(codes.ResourceExhausted, err)
	}
	defer room.Release()
	message, err := s.receive(call)
	if err != nil {
		s.host.Count("requests_refused", 1)
		return err
	}
	records, refused, err := s.parse(ctx, message, room)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return s.busy(codes.ResourceExhausted, err) // no room for the records in time
	default:
		s.host.Count("requests_refused", 1)
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.deliver(ctx, records, room); err != nil {
		return s.busy(codes.Unavailable, err)
	}
	answer := refused.answer()
	return call.SendMsg(&answer)
}

// authorized reports whether the client has a valid token, or the source requires none.
func (s *Server) authorized(ctx context.Context) bool {
	if !s.HasTokens() {
		return true
	}
	header := strings.Join(metadata.ValueFromIncomingContext(ctx, "authorization"), ",")
	_, ok := s.Client(header)
	return ok
}

// receive reads the message of a call. If the client is too slow, the call ends with the status
// Canceled: gRPC has already sent this status when RecvMsg returns.
func (s *Server) receive(call grpc.ServerStream) (message []byte, err error) {
	done := s.reads.begin(end(call))
	err = call.RecvMsg(&message)
	done()
	if err != nil {
		cause := context.Cause(call.Context())
		s.host.Log().Debug("request not read", "error", errors.Join(err, cause))
	}
	if errors.Is(err, io.EOF) {
		err = status.Error(codes.InvalidArgument, "the request has no message; send an "+
			"ExportLogsServiceRequest")
	}
	s.host.Count("bytes_received", int64(len(message)))
	return message, err
}

// refusals counts the refused records of a request.
type refusals struct {
	count int64
	first error // reason of the first refusal
}

// parse returns the records in a message. It refuses each record that is longer than the option
// max_record, and keeps the others. The records may need more memory than the message, because
// each of them repeats the attributes of its resource and its scope. parse then reserves more
// memory.
func (s *Server) parse(ctx context.Context, message []byte, room *intake.Reservation) (
	records intake.Records, refused refusals, err error,
) {
	used := otlplog.ProtobufMemory(message)
	expand := func(bytes int64) error {
		err := room.Expand(ctx, int64(len(message)), used+bytes)
		if errors.Is(err, intake.ErrTooLarge) {
			return fmt.Errorf("the records of the request take more than %v (memory); send it in "+
				"parts", s.o.Memory)
		}
		return err
	}
	if err := expand(0); err != nil {
		return records, refused, err
	}
	number := 0
	err = otlplog.Protobuf(message, func(record []byte) error {
		number++
		if len(record) > int(s.o.MaxRecord) {
			if refused.count++; refused.first == nil {
				refused.first = fmt.Errorf("log record %d has %d bytes, at most %v (max_record)",
					number, len(record), s.o.MaxRecord)
			}
			return nil
		}
		size := int64(records.Size()+len(record)) + int64(records.Len()+1)*intake.RecordOverhead
		if err := expand(size); err != nil {
			return err
		}
		records.Add(record)
		return nil
	})
	if err == nil {
		s.host.Count("records_refused", refused.count)
	}
	return records, refused, err
}

// answer returns the encoded response, an ExportLogsServiceResponse. It reports the number of
// refused records, and the reason of the first refusal.
func (r refusals) answer() []byte {
	if r.count == 0 {
		return nil
	}
	var partial []byte
	partial = protowire.AppendTag(partial, 1, protowire.VarintType) // rejected_log_records
	partial = protowire.AppendVarint(partial, uint64(r.count))
	partial = protowire.AppendTag(partial, 2, protowire.BytesType) // error_message
	partial = protowire.AppendString(partial, r.first.Error())
	out := protowire.AppendTag(nil, 1, protowire.BytesType) // partial_success
	return protowire.AppendBytes(out, partial)
}

// deliver submits records and waits until all routes have settled them or, with ack: buffered,
// until they are on disk.
func (s *Server) deliver(
	ctx context.Context, records intake.Records, room *intake.Reservation,
) error {
	size := records.Size()
	sub, err := room.Submit(records, true)
	if err != nil {
		return fmt.Errorf("nothing was taken: %w", err)
	}
	unknown, err := s.Await(ctx, sub, size)
	switch {
	case unknown:
		return fmt.Errorf("the outcome is unknown, records may be delivered twice: %w", err)
	case err != nil:
		return fmt.Errorf("nothing was taken: %w", err)
	}
	return nil
}

// busy returns a status after which clients wait and repeat the request.
func (s *Server) busy(code codes.Code, err error) error {
	s.host.Count("requests_busy", 1)
	if errors.Is(err, intake.ErrDraining) || errors.Is(err, errStopped) {
		code = codes.Unavailable
	}
	st, detailed := status.New(code, err.Error()).WithDetails(
		&errdetails.RetryInfo{RetryDelay: durationpb.New(s.RetryAfter())})
	if detailed != nil {
		return status.Error(code, err.Error())
	}
	return st.Err()
}
