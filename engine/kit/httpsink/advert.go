package httpsink

import (
	"crypto/rand"
	"encoding/hex"
	nethttp "net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// advert is the state that a lane keeps about a receiver that advertises its window: the receiver
// limits the batches in flight to it, by a header of its responses
// (docs/formats/advertised-window.md).
type advert struct {
	sender string
	// the minimum of recent round trips, without the time for which the receiver queued and
	// processed the request, in nanoseconds; 0 if unknown
	network atomic.Int64
}

func newAdvert() *advert {
	id := make([]byte, 8)
	rand.Read(id) // rand.Read never fails
	return &advert{sender: hex.EncodeToString(id)}
}

// networkDrift bounds how fast the stored network time (the minimum of recent round trips) grows.
// One response can raise it by at most 1/256 of its value.
const networkDrift = 1.0 / 256

// unitRecords is the unit in which the sink states the cost of a batch.
const unitRecords = "records"

// setHeader sets the header [stream.SenderHeader]: the sender's name, the cost of the batch and, if
// it is known, the network time (a round trip without the time at the receiver).
func (a *advert) setHeader(h nethttp.Header, records int) {
	value := a.sender + "; unit=" + unitRecords + "; cost=" + strconv.Itoa(records)
	if n := time.Duration(a.network.Load()); n > 0 {
		value += "; network=" + strconv.FormatInt(n.Microseconds(), 10)
	}
	h.Set(stream.SenderHeader, value)
}

// read returns the report that the receiver sent with its response. It returns the zero Report if
// there is no report, if the report is malformed, or if its unit is neither batches nor records. A
// valid report also updates the network time, which is the minimum of recent round trips without
// queueing and processing at the receiver.
func (a *advert) read(h nethttp.Header, roundTrip time.Duration) stream.Report {
	value := h.Get(stream.CreditHeader)
	if value == "" {
		return stream.Report{}
	}
	r, ok := stream.ParseGrant(value)
	if !ok || !r.Batches && !isOwnUnit(value) {
		return stream.Report{}
	}
	if n := roundTrip - r.QueueWait - r.Service; n > 0 {
		for {
			old := a.network.Load()
			next := int64(n)
			if old > 0 {
				next = min(next, old+max(1, int64(float64(old)*networkDrift)))
			}
			if a.network.CompareAndSwap(old, next) {
				break
			}
		}
	}
	return r
}

// isOwnUnit reports whether the text of an advertised window (a grant) states the unit "records",
// or no unit, which means the same. The caller has already handled grants with the unit "batches".
func isOwnUnit(grant string) bool {
	_, unit, ok := strings.Cut(grant, "unit=")
	unit, _, _ = strings.Cut(unit, ";")
	return !ok || strings.TrimSpace(unit) == unitRecords
}
