package http

import (
	"crypto/rand"
	"encoding/hex"
	nethttp "net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// advert is what passes between a lane and a receiver that advertises its window
// (docs/formats/advertised-window.md).
type advert struct {
	sender  string
	network atomic.Int64 // least round trip of late without the receiver's share, nanoseconds; 0: not known
}

func newAdvert() *advert {
	id := make([]byte, 8)
	rand.Read(id) // it never fails
	return &advert{sender: hex.EncodeToString(id)}
}

// networkDrift lets the least round trip rise again: by this share with each answer.
const networkDrift = 1.0 / 256

// ask names the sender, and what the network takes once a receiver has shown that it wants to know.
func (a *advert) ask(h nethttp.Header) {
	value := a.sender
	if n := time.Duration(a.network.Load()); n > 0 {
		value += "; network=" + strconv.FormatInt(n.Microseconds(), 10)
	}
	h.Set(stream.SenderHeader, value)
}

// read takes the report out of an answer; the zero one, if there is none.
func (a *advert) read(h nethttp.Header, roundTrip time.Duration) stream.Report {
	value := h.Get(stream.CreditHeader)
	if value == "" {
		return stream.Report{}
	}
	r, ok := stream.ParseGrant(value)
	if !ok {
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
