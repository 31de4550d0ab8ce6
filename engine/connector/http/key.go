package http

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// Values of idempotency_key other than an expression.
const (
	keyOfBatch = "true"
	keyNone    = "false"
)

// maxKey is the maximum length in bytes of a value that becomes the idempotency key unchanged. A
// longer value is hashed.
const maxKey = 255

// Shape implements stream.Shaper. It compiles the expressions over records.
func (o *Options) Shape(in stream.Schema) (stream.Schema, error) {
	if o.Body == ElasticsearchBulk {
		if _, err := o.Elasticsearch.Shape(in); err != nil {
			return in, httpsink.Within("elasticsearch", err)
		}
	}
	var err error
	if o.line, err = o.Audit.ID.Compile("audit.id", in); err != nil {
		return in, err
	}
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

var errNoKey = errors.New("the value is null or empty, so it cannot distinguish records")

// keyOf returns the idempotency key of a request with batch b. The option idempotency_key is an
// expression, which gives a value for each record. If the batch has one record, and its value has
// only visible ASCII characters, and at most maxKey of them, the value is the key. Otherwise the
// key is a hash of the values of all records.
//
// A record without a value is refused. Otherwise two such records would have the same key, and the
// receiver would ignore the second one.
func (c *codec) keyOf(b *stream.Batch) (string, error) {
	e := c.keys.Get().(*expr.Evaluator)
	defer c.keys.Put(e)
	e.Begin(b)
	hash := sha256.New()
	var value []byte
	kept := b.AppendKept(nil)
	for _, i := range kept {
		var err error
		if value, err = e.AppendText(value[:0], i); err == nil && len(value) == 0 {
			err = errNoKey
		}
		if err != nil {
			err = fmt.Errorf("idempotency_key %s: %w", c.o.IdempotencyKey, err)
			return "", &stream.Rejected{Err: err}
		}
		if len(kept) == 1 && len(value) <= maxKey && visible(value) {
			return string(value), nil
		}
		hash.Write(append(value, 0))
	}
	return hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// visible reports whether text has only visible ASCII characters, so that a header can contain it
// unchanged.
func visible(text []byte) bool {
	return !bytes.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7F })
}
