//penstock:pure

package buffer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
)

// The buffer remembers the keys of requests, so that it can ignore a request that is sent twice. It
// stores the keys in the envelopes, its numbered entries: an envelope has the keys of its own
// records. When an envelope is deleted, its keys are deleted with it. Before that, the buffer
// appends copies of all remembered keys. The field keysFrom of each envelope is the number of the
// first envelope that is needed to read all remembered keys:
//
//	number      1         2         3 (copies)   4
//	keys        a         b         a b          c
//	keysFrom    1         1         3            3     1 and 2 may be deleted now
//
// If the copies need several envelopes, only the last of these has the new keysFrom.

// key identifies a request by its id, and states which part of the request is in an envelope.
type key struct {
	id      string // of the request's partition
	arrived int64  // seconds since 1970
	end     int64  // position in the request after the last stored byte
	off, n  uint32 // of the request's bytes in the data; n is 0 in copies
}

const (
	// keySize is the size of a stored key without its id.
	keySize = 1 + 8 + 8 + 4 + 4
	// maxKeyID bounds the id of a key.
	maxKeyID = 200
	// copiesEach is the number of copied keys in one envelope. With it, the envelope stays below
	// the maximum size of a message that servers accept.
	copiesEach = 4 << 10
	// copiesEvery bounds the space for copies of keys. Keys are copied again when the envelopes
	// after the last copies have a certain size: copiesEvery times the size of these copies, but at
	// least leastCopied and at most a quarter of the buffer's size limit. Example: copies of 100
	// KiB are made again after 800 KiB of other envelopes.
	copiesEvery = 8
	// leastCopied is the minimum number of bytes of envelopes between two copies.
	leastCopied = 64 << 10
	// keyShare bounds the space of remembered keys to 1/keyShare of the buffer's size.
	keyShare = 16
	// keyRoom is the space that one key needs if its request came over http_server, rounded up.
	keyRoom = 72
)

// appendKeys appends the number of keys, and the keys.
func appendKeys(dst []byte, keys []key) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(keys)))
	for i := range keys {
		k := &keys[i]
		dst = append(append(dst, byte(len(k.id))), k.id...)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(k.arrived))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(k.end))
		dst = binary.LittleEndian.AppendUint32(dst, k.off)
		dst = binary.LittleEndian.AppendUint32(dst, k.n)
	}
	return dst
}

var errShortKeys = errors.New("it ends within its keys")

// decodeKeys reads keysFrom and the keys, and returns the remaining bytes.
func (e *envelope) decodeKeys(rest []byte) ([]byte, error) {
	if len(rest) < 12 {
		return nil, errShortKeys
	}
	e.keysFrom = binary.LittleEndian.Uint64(rest)
	count := int(binary.LittleEndian.Uint32(rest[8:]))
	rest = rest[12:]
	if count > len(rest)/keySize {
		return nil, errShortKeys
	}
	if count > 0 {
		e.keys = make([]key, count)
	}
	for i := range e.keys {
		if len(rest) < keySize || len(rest) < keySize+int(rest[0]) {
			return nil, errShortKeys
		}
		k, n := &e.keys[i], 1+int(rest[0])
		k.id = string(rest[1:n])
		rest = rest[n:]
		k.arrived = int64(binary.LittleEndian.Uint64(rest))
		k.end = int64(binary.LittleEndian.Uint64(rest[8:]))
		k.off = binary.LittleEndian.Uint32(rest[16:])
		k.n = binary.LittleEndian.Uint32(rest[20:])
		rest = rest[24:]
	}
	if !e.hasKeys() {
		return nil, errors.New("it has no keys, but the form with keys")
	}
	return rest, nil
}

// checkKeys returns an error if a key is malformed, if the keys are not in the order of the data,
// or if they exceed the data. size is the number of bytes of the data.
func checkKeys(keys []key, size int) error {
	at := uint64(0)
	for i := range keys {
		k := &keys[i]
		end := uint64(k.off) + uint64(k.n)
		if k.id == "" || len(k.id) > maxKeyID || k.end < int64(k.n) {
			return fmt.Errorf("its key %d is wrong", i+1)
		}
		if uint64(k.off) < at || end > uint64(size) {
			return errors.New("its keys are not in the order of the data")
		}
		at = end
	}
	return nil
}

// keysOf returns the keys of the requests in a batch: one for each non-empty span of a request. The
// name of a request's partition contains the time at which the request arrived. If the name has no
// time, the key gets the time now.
func keysOf(spans []stream.Span, now time.Time) (keys []key) {
	off := 0
	for i := range spans {
		s := &spans[i]
		if stream.IsRequest(s.Part.ID) && s.Bytes > 0 {
			keys = append(keys, key{
				id: s.Part.ID, arrived: intake.RequestTime(s.Part.Name, now).Unix(), end: s.To.Num,
				off: uint32(off), n: uint32(s.Bytes),
			})
		}
		off += s.Bytes
	}
	return keys
}

// copyOf returns a copy of a request's key, to be stored in a later envelope without the request's
// data. m is the request's progress, as the intake remembers it.
func copyOf(m stream.Mark, now time.Time) key {
	return key{
		id: m.Part.ID, arrived: intake.RequestTime(m.Part.Name, now).Unix(), end: m.Watermark.Num,
	}
}

// mark returns the progress in the request of k, in the form that the intake needs.
func (k *key) mark() stream.Mark {
	name := intake.RequestName(time.Unix(k.arrived, 0))
	m := stream.Mark{Part: stream.Partition{ID: k.id, Name: name}}
	m.Watermark.Num = k.end
	return m
}

// identities appends to out a [stream.Identity] for each request with records in e between the
// offsets from and to. With it, the ids of these records consist of the request's id and a position
// in the request. If the request is stored twice, both copies of a record then have the same id.
func (e *envelope) identities(out []stream.Identity, from, to int) []stream.Identity {
	n, found := slices.BinarySearchFunc(e.keys, from, func(k key, at int) int {
		return cmp.Compare(int(k.off), at)
	})
	if !found && n > 0 {
		n--
	}
	for ; n < len(e.keys) && int(e.keys[n].off) < to; n++ {
		k := &e.keys[n]
		off, end := int(k.off), int(k.off+k.n)
		lo, hi := max(off, from), min(end, to)
		if lo >= hi {
			continue
		}
		out = append(out, stream.Identity{
			From: positionOf(e.number, lo), To: e.after(hi), Prefix: k.id,
			First: k.end - int64(end-lo), Last: k.end - int64(end-hi),
		})
	}
	return out
}

// keyRecord has the number of the first envelope with remembered keys of requests. It also has the
// sizes from which the buffer decides when to copy these keys. The zero value is for a buffer
// without keys.
type keyRecord struct {
	from   uint64 // number of the envelope with which the record of keys begins; 0 if there is none
	copied int64  // bytes of the last copies
	since  int64  // bytes of the envelopes after the last copies
}

// stored updates r after an envelope with records was stored.
func (r *keyRecord) stored(e *envelope, size int) {
	r.from = e.keysFrom
	r.since += int64(size)
}

// found updates r for an envelope that was read during recovery. Recovery reads the envelopes with
// remembered keys in order. If the first ones have only copies of keys, these are the last copies
// that the buffer has made. All later envelopes count as data after the copies.
func (r *keyRecord) found(e *envelope) {
	if e.records == 0 && r.since == 0 {
		r.copied += int64(e.size)
	} else {
		r.since += int64(e.size) // an interrupted copy counts like data
	}
}

// due reports whether the remembered keys must be copied now. size is the size limit of the buffer.
func (r *keyRecord) due(size int64) bool {
	return r.from != 0 && r.since >= min(max(copiesEvery*r.copied, leastCopied), size/4)
}

// fromOf returns the value of keysFrom for the next envelope, which has the given number and keys:
// the number of the first envelope that is needed to read all remembered keys. If no keys were
// remembered before and the envelope has keys, this is the envelope's own number. Otherwise
// keysFrom stays as it was.
func (r *keyRecord) fromOf(number uint64, keys []key) uint64 {
	if r.from == 0 && len(keys) > 0 {
		return number
	}
	return r.from
}
