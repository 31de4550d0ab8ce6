package httpserver

import (
	"crypto/sha256"
	"testing"
	"time"
)

// TestKeysCountBytes checks a request that expires while it is in progress. Another request with
// the same key then takes its place. The response of the expired request must not count as held
// memory.
func TestKeysCountBytes(t *testing.T) {
	now := time.Unix(1000, 0)
	k := newKeys(time.Minute)
	first, mine := k.begin("key", [sha256.Size]byte{}, now)
	second, again := k.begin("key", [sha256.Size]byte{}, now.Add(time.Minute))
	if !mine || !again {
		t.Fatal("a request was taken for a repetition")
	}
	k.submitted(first, nil, reply{body: make([]byte, 100)})
	k.submitted(second, nil, reply{body: make([]byte, 10)})
	if want := keyCost + 10; k.bytes != want {
		t.Errorf("%d bytes are counted, want %d", k.bytes, want)
	}
	k.failed(second)
	if k.bytes != 0 {
		t.Errorf("%d bytes are counted without a request", k.bytes)
	}
}
