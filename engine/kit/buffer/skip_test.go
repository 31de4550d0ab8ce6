package buffer

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream/streamtest"
)

// TestFullSkipped checks that a full buffer accepts data again after an operator has skipped intact
// envelopes. Only the skipped ones are not read, and they are counted and logged.
func TestFullSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(kept)
		o := Options{Bytes: minBytes, Sync: SyncAlways}
		p := start(t, store, o, intake.Options{})
		const envelopes = minBytes >> 20
		for n := range envelopes {
			p.add(t, fmt.Sprint(n+1)+strings.Repeat("x", 1<<20))
		}
		p.b.mu.Lock()
		if !p.b.isFull(p.b.oldest) {
			t.Errorf("%d bytes do not fill the buffer", p.b.bytes)
		}
		p.b.mu.Unlock()
		p.stop(t)

		o.Skip = fmt.Sprintf("1-%d", envelopes-1)
		p = start(t, store, o, intake.Options{})
		r := &route{name: streamtest.Route}
		r.open(t, p)
		texts, b, err := r.read(t)
		if err != nil || len(texts) != 1 || !strings.HasPrefix(texts[0], fmt.Sprint(envelopes)+"x") {
			t.Fatalf("read %.10q, %v; want only envelope %d", texts, err, envelopes)
		}
		r.commit(t, b)
		p.add(t, "more") // waits until there is room
		r.commit(t, r.want(t, "more"))
		if n := p.host.Counted("buffer_skipped"); n != envelopes-1 {
			t.Errorf("%d envelopes count as skipped, want %d", n, envelopes-1)
		}
		p.stop(t)
		if want := "envelopes skipped by an operator's decision"; !strings.Contains(p.log.String(),
			want) {
			t.Errorf("the log has no %q:\n%s", want, p.log.String())
		}
	})
}
