package tail_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/connector/tail"
)

// TestIdentity checks a file that was written again under its own name with the same beginning, as
// by a restore that does not keep times. It counts as a new file, or, with identity: content, as
// the old one.
func TestIdentity(t *testing.T) {
	for _, identity := range []string{"auto", "content"} {
		t.Run(identity, func(t *testing.T) {
			// later than the births of the files
			dir, base := t.TempDir(), time.Now().Add(time.Hour)
			synctest.Test(t, func(t *testing.T) {
				p := newFixture(t, dir, func(o *tail.Options) { o.Identity = identity })
				defer p.kill()
				w := newWriter(t, dir, base)
				w.append("a.log", 30)
				p.start(false)
				p.pump(5 * time.Second)
				p.kill()
				want := slices.Clone(w.ledger)
				w.copy("a.log", "copy")
				w.remove("a.log")
				w.rename("copy", "a.log")
				w.append("a.log", 5)
				doubtful := int64(0)
				if identity == "auto" {
					want, doubtful = append(want, w.ledger...), 1
				} else {
					want = w.ledger
				}
				p.start(false)
				p.pump(2 * time.Minute)
				p.want(want...)
				if n := p.host.Counted("files_doubtful"); n != doubtful {
					t.Errorf("files_doubtful is %d, want %d", n, doubtful)
				}
			})
		})
	}
}
