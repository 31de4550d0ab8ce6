package follow_test

import (
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// moveThrice moves a.log, with the text of the constant three, to a.log.1, then to a.log.2 and then
// to a.log.3. For each move it copies the file, lets route a look, deletes the original, and lets
// both routes look. Each look takes the time gap.
func moveThrice(t *testing.T, d *folder, gap time.Duration, a, b *route) {
	t.Helper()
	for _, move := range [][2]string{{"a.log", "a.log.1"}, {"a.log.1", "a.log.2"}, {"a.log.2", "a.log.3"}} {
		d.put(t, move[1], three)
		a.run(t, gap)
		d.delete(t, move[0])
		turns(t, 1, gap, a, b)
	}
}

// TestDeletedFileIsIdentifiedAfterItsDataMoved checks a second route that first meets a file after
// the first route has continued in its copy, under the same id. The copy is then moved again. No
// line must be delivered twice.
func TestDeletedFileIsIdentifiedAfterItsDataMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", "0 zero\n")
		turns(t, 1, 2*time.Second, a, b)
		d.empty(t, "a.log")
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log", three)
		a.run(t, time.Second)
		moveThrice(t, d, 200*time.Millisecond, a, b)
		turns(t, 30, time.Second, a, b)
		wantLines(t, d, a, b, "0 zero", "1 one", "2 two", "3 three")
		d.wantNoLoss(t)
		if one, two := a.ids["1 one"], b.ids["1 one"]; one != two {
			t.Errorf("the routes know the file as %s and %s", one, two)
		}
	})
}

// TestIDOfMovedDataIsNotGivenAgain checks a file that always begins with the same line, such as a
// header of column names. Its data moves to a copy and keeps the id derived from that line. The
// next process must give the file's new content another id.
func TestIDOfMovedDataIsNotGivenAgain(t *testing.T) {
	for _, name := range []string{"a.log.1", "a-1.log"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testIDOfMovedData(t, name) })
		})
	}
}

func testIDOfMovedData(t *testing.T, copied string) {
	d, a, b := twoRoutes(t, follow.Growing{})
	d.put(t, "a.log", "0 head\n")
	turns(t, 1, 2*time.Second, a, b)
	d.put(t, "a.log", "1 one\n")
	turns(t, 1, 2*time.Second, a, b)
	d.put(t, copied, "0 head\n1 one\n")
	d.empty(t, "a.log")
	turns(t, 1, 10*time.Second, a, b)
	wantLines(t, d, a, b, "0 head", "1 one")
	stop(t, a, b)
	a2, b2 := d.restarted(t, a, b)
	d.put(t, "a.log", "0 head\n")
	turns(t, 1, 10*time.Second, a2, b2)
	wantLines(t, d, a2, b2, "0 head")
	d.put(t, "a.log", "2 two\n")
	d.put(t, copied, "3 three\n")
	turns(t, 1, 10*time.Second, a2, b2)
	wantLines(t, d, a2, b2, "0 head", "2 two", "3 three")
	d.wantNoLoss(t)
	if a2.ids["2 two"] == a2.ids["3 three"] {
		t.Errorf("two files have the id %s", a2.ids["2 two"])
	}
}

// TestIDOfMovedEqualLines is the same for a log of equal lines: the new content begins like the old
// one, and is longer.
func TestIDOfMovedEqualLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", strings.Repeat("tick\n", 400))
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a-1.log", strings.Repeat("tick\n", 400))
		d.empty(t, "a.log")
		turns(t, 2, 10*time.Second, a, b)
		stop(t, a, b)
		a2, b2 := d.restarted(t, a, b)
		d.put(t, "a.log", strings.Repeat("tick\n", 500))
		turns(t, 3, 10*time.Second, a2, b2)
		if len(a.lines) != 400 || len(b.lines) != 400 || len(a2.lines) != 500 || len(b2.lines) != 500 {
			t.Errorf("%d and %d lines, then %d and %d, want 400, then 500", len(a.lines),
				len(b.lines), len(a2.lines), len(b2.lines))
		}
	})
}

// TestMovedBeforeAnythingWasRead checks a file that one route has read, and that is moved several
// times before the other route could read any of it. The other route must read all lines in a copy,
// and no loss may be reported.
func TestMovedBeforeAnythingWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		a.run(t, time.Second)
		reads := 0
		d.fault = func(string) error {
			if reads++; reads == 1 { // this read identifies the file
				return nil
			}
			return syscall.EIO
		}
		b.run(t, 100*time.Millisecond)
		d.fault = nil
		moveThrice(t, d, 50*time.Millisecond, a, b)
		turns(t, 30, time.Second, a, b)
		wantLines(t, d, a, b, "1 one", "2 two", "3 three")
		d.wantNoLoss(t)
	})
}
