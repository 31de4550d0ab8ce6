package http

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/stream"
)

// What idempotency_key may be but an expression.
const (
	keyOfBatch = "true"
	keyNone    = "false"
)

// maxKey is how long a key may be that is a record's own value, in bytes; a longer one is hashed.
const maxKey = 255

func (o *Options) keyed() bool { return o.IdempotencyKey != keyNone }

// Shape implements stream.Shaper: it compiles the expression of idempotency_key.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	if o.IdempotencyKey == keyOfBatch || o.IdempotencyKey == keyNone {
		return in, nil
	}
	key, err := expr.Value(string(o.IdempotencyKey), in)
	if err != nil {
		return in, expr.Option("idempotency_key", err)
	}
	o.key = key
	return in, nil
}

var errNoKey = errors.New("the value is null or empty, and would tell no records apart")

// keyOf is the key of a request for b: the batch's id, or what the expression says. Of one record
// that is its value; of several, and where no header could hold the value, it is a hash of all. A
// record without a value is refused, since the receiver would take it for a repetition of the last
// such one.
func (s *Sink) keyOf(b *stream.Batch) (string, error) {
	if s.o.key == nil {
		return b.ID(), nil
	}
	e := s.keys.Get().(*expr.Evaluator)
	defer s.keys.Put(e)
	e.Begin(b)
	kept := b.Kept()
	hash := sha256.New()
	var value []byte
	for i := range b.Records {
		if b.Records[i].State != stream.Kept {
			continue
		}
		var err error
		if value, err = e.AppendText(value[:0], i); err == nil && len(value) == 0 {
			err = errNoKey
		}
		if err != nil {
			return "", &stream.Rejected{Err: fmt.Errorf("idempotency_key %s: %w", s.o.IdempotencyKey, err)}
		}
		if kept == 1 && len(value) <= maxKey && visible(value) {
			return string(value), nil
		}
		hash.Write(append(value, 0))
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// visible says whether a header holds text as it is.
func visible(text []byte) bool {
	for _, c := range text {
		if c <= ' ' || c >= 0x7F {
			return false
		}
	}
	return true
}
