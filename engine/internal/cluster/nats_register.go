//go:build !no_nats

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsRegister is one key of a NATS bucket.
type natsRegister struct {
	link *link
	key  string
}

// Write implements Register.
func (r *natsRegister) Write(ctx context.Context, found bool, revision uint64,
	data []byte) (uint64, error) {
	s, err := r.link.current()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var next uint64
	if found {
		next, err = s.kv.Update(ctx, r.key, data, revision)
	} else {
		next, err = s.kv.Create(ctx, r.key, data)
	}
	if isConflict(err) {
		return 0, ErrConflict
	}
	return next, err
}

// codeWrongLastSequence is the error code with which a replicated stream refuses a write whose
// expected revision is old.
const codeWrongLastSequence = jetstream.JSErrCodeStreamWrongLastSequenceConstant

func isConflict(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			api.ErrorCode == codeWrongLastSequence
	}
	return errors.Is(err, jetstream.ErrKeyExists)
}

// Read implements Register. It asks the leader of the stream. It does not use the method Get of the
// client library, which may ask a replica that is behind the leader.
func (r *natsRegister) Read(ctx context.Context) (Stored, error) {
	s, err := r.link.current()
	if err != nil {
		return Stored{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	stream := "KV_" + s.kv.Bucket()
	subject := "$KV." + s.kv.Bucket() + "." + r.key
	query, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return Stored{}, err
	}
	api := jetstream.DefaultAPIPrefix + "STREAM.MSG.GET." + stream
	m, err := s.conn.RequestWithContext(ctx, api, query)
	if err != nil {
		return Stored{}, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return Stored{}, fmt.Errorf("key %q: response of the server: %w", r.key, err)
	}
	if e := answer.Error; e != nil && e.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return s.missing(ctx, stream)
	} else if e != nil {
		return Stored{}, e
	}
	if answer.Message == nil {
		return Stored{}, fmt.Errorf("key %q: the response of the server has no message", r.key)
	}
	h, err := natsgo.DecodeHeadersMsg(answer.Message.Header)
	if err == nil && h.Get("KV-Operation") != "" { // the key was deleted
		return s.missing(ctx, stream)
	}
	return Stored{Found: true, Revision: answer.Message.Seq, Data: answer.Message.Data}, nil
}

// missing returns the Stored for a key that does not exist. Its revision is the last revision of
// the whole bucket.
func (s *session) missing(ctx context.Context, stream string) (Stored, error) {
	st, err := s.js.Stream(ctx, stream)
	if err != nil {
		return Stored{}, err
	}
	return Stored{Revision: st.CachedInfo().State.LastSeq}, nil
}
