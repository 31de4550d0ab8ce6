package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// message returns the first message of the stream with sequence seq or a higher one. It returns
// jetstream.ErrMsgNotFound if there is none.
//
// Unlike the client library, it always asks the leader of the stream. If the stream has
// allow_direct, the library may get the response of a replica that does not have the latest
// messages yet. The reader would then skip them.
func (r *logReader) message(ctx context.Context, seq uint64) (*content, error) {
	request, err := json.Marshal(struct {
		Seq     uint64 `json:"seq"`
		Subject string `json:"next_by_subj"`
	}{seq, cmp.Or(r.s.o.Subject, ">")})
	if err != nil {
		return nil, err
	}
	got, err := r.client.conn.RequestWithContext(ctx,
		r.client.apiPrefix()+"STREAM.MSG.GET."+r.s.o.Stream, request)
	if err != nil {
		return nil, err
	}
	var response struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(got.Data, &response); {
	case err != nil:
		return nil, err
	case response.Error != nil && response.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case response.Error != nil:
		return nil, response.Error
	case response.Message == nil:
		return nil, errors.New("the response of the server has no message")
	}
	m := response.Message
	var header natsgo.Header
	if len(m.Header) > 0 {
		if header, err = natsgo.DecodeHeadersMsg(m.Header); err != nil {
			return nil, err
		}
	}
	return &content{seq: m.Seq, subject: m.Subject, header: header, data: m.Data, at: m.Time}, nil
}
