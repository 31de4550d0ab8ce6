package follow_test

import (
	"bytes"
	"compress/gzip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// TestCopyIsNotOpenedAgain checks a copy that continues a file of which all was read. The next
// process recognises the copy by its size and time, and does not open it. If the copy is deleted
// before it could be opened, no loss is reported.
func TestCopyIsNotOpenedAgain(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"a.log.1": "x\n", "a.log.1.gz": packed.String()} {
		for _, deleted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", "x\n")
				turns(t, 1, 2*time.Second, a, b)
				a.lines, b.lines = nil, nil
				d.put(t, name, data)
				d.delete(t, "a.log")
				turns(t, 10, 2*time.Second, a, b)
				stop(t, a, b)
				d.rename(t, name, "z")
				d.shut = func(string) error {
					t.Errorf("%s is opened again; the log:\n%s", name, &d.log)
					return nil
				}
				if deleted {
					d.then, d.shut = func() { d.delete(t, "z") }, nil
				}
				a2, b2 := d.restarted(t, a, b)
				turns(t, 10, 5*time.Second, a2, b2)
				a2.want(t, d)
				b2.want(t, d)
				d.wantNoLoss(t)
			})
		}
	}
}
