//penstock:pure

package httppoll

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-io/penstock/stream"
)

// place identifies a page of the API. It consists of a token and of the number of steps before the
// page. The token is the part of a request that selects the page. A position counts steps: one for
// each record, and one for each change to the next page.
//
//	page ""       records a b c    steps 1 2 3    change to the next page: step 4
//	page "x9"     records d e      steps 5 6
//
// Example: the position after record d is the number 5 with the encoded place of page "x9". After a
// restart, the source requests this page again and skips its first record.
//
// In the modes byRecord and byOffset, a new page begins after each record, and only records are
// steps. Positions then do not depend on the number of records that the server puts on a page.
type place struct {
	mode  mode
	token string // "" for the first page
	base  int64  // number of steps before its first record
	// digests of the last ids before this page, the oldest first; only with the option id
	tail []digest
	// encoded form of the place: the Key of positions in this page
	key string
}

// mode determines how a token identifies a page.
type mode byte

// The modes.
const (
	byURL    mode = 'u' // the token is a path and query on the server of the URL
	byCursor mode = 'c' // the token is the value of a parameter
	byOffset mode = 'o' // the token is the number of records before the page
	byRecord mode = 'r' // the token is the cursor of the last record before the page
)

// perRecord reports whether a new page begins after each record.
func (m mode) perRecord() bool { return m == byOffset || m == byRecord }

// digest is the first 8 bytes of a SHA-256 hash.
type digest [8]byte

func digestOf(id []byte) (d digest) {
	sum := sha256.Sum256(id)
	copy(d[:], sum[:])
	return d
}

// digestOfAll returns one digest of all records of a page together.
func digestOfAll(records [][]byte) digest { return digestOf(bytes.Join(records, []byte{'\n'})) }

const (
	keyVersion = 1
	// maxKey is the maximum size of a key in the ledgers of SQL sinks.
	maxKey = 1024
)

// newPlace returns a place with its encoded form, which becomes a part of the positions on this
// page. It returns an error if the token is so long that the encoded form would exceed maxKey, the
// limit of the ledgers.
func newPlace(m mode, token string, base int64, tail []digest) (place, error) {
	p := place{mode: m, token: token, base: base, tail: tail}
	if token == "" && base == 0 && len(tail) == 0 {
		return p, nil
	}
	b := []byte{keyVersion, byte(m)}
	b = binary.BigEndian.AppendUint64(b, uint64(base))
	b = binary.AppendUvarint(b, uint64(len(tail)))
	for _, d := range tail {
		b = append(b, d[:]...)
	}
	if b = append(b, token...); len(b) > maxKey {
		return p, fmt.Errorf("`next` has %d bytes, but a position holds at most %d",
			len(token), maxKey-len(b)+len(token))
	}
	p.key = string(b)
	return p, nil
}

var errPlace = errors.New("the checkpoint's position is not one of http_poll")

// readPlace decodes a place from the Key of a position.
func readPlace(m mode, key string) (place, error) {
	if key == "" {
		return place{mode: m}, nil
	}
	b := []byte(key)
	if len(b) < 11 || b[0] != keyVersion {
		return place{}, errPlace
	}
	if mode(b[1]) != m {
		return place{}, errors.New("the position in the checkpoint has another paging method: " +
			"restore `cursor`, `after` or `offset`, or read from the beginning after `penstock " +
			"checkpoint reset`")
	}
	p := place{mode: m, base: int64(binary.BigEndian.Uint64(b[2:])), key: key}
	n, size := binary.Uvarint(b[10:])
	if size <= 0 || p.base < 0 || n > uint64(len(b))/8 {
		return place{}, errPlace
	}
	rest := b[10+size:]
	for range n {
		if len(rest) < len(digest{}) {
			return place{}, errPlace
		}
		p.tail = append(p.tail, digest(rest))
		rest = rest[len(digest{}):]
	}
	p.token = string(rest)
	return p, nil
}

// position returns the position in this page after the given number of steps.
func (p *place) position(step int64) stream.Position {
	return stream.Position{Num: step, Key: p.key}
}

// lastOf returns the digests of the last n distinct record ids, to recognize records that come
// again on the next page. a has the ids before a page, and b those of the page itself. Zero digests
// (records without an id) are omitted.
func lastOf(n int, a, b []digest) []digest {
	var out []digest
	have := make(map[digest]bool)
	for _, list := range [][]digest{b, a} {
		for i := len(list) - 1; i >= 0 && len(out) < n; i-- {
			if d := list[i]; d != (digest{}) && !have[d] {
				have[d] = true
				out = append(out, d)
			}
		}
	}
	slices.Reverse(out)
	return out
}
