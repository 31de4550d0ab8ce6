package follow_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
)

// moveThrice moves a.log, which holds three, from name to name by copy and delete; a looks in
// between, and both after it.
func moveThrice(t *testing.T, d *folder, gap time.Duration, a, b *route) {
	t.Helper()
	for _, move := range [][2]string{{"a.log", "a.log.1"}, {"a.log.1", "a.log.2"}, {"a.log.2", "a.log.3"}} {
		d.put(t, move[1], three)
		a.run(t, gap)
		d.delete(t, move[0])
		turns(t, 1, gap, a, b)
	}
}

// The first route has read a file and goes on in its copy when the second one comes to its data,
// under the same id. Moved again, it comes no second time.
func TestDeletedFileIsMetAfterItsDataMoved(t *testing.T) {
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

// A file begins with the same line each time, such as a header of column names. Its data is moved
// to a copy, under the id made of that line. Lines written to the file itself afterwards, in the
// next process, belong to another file.
func TestIDOfMovedDataIsNotGivenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", "0 head\n")
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log", "1 one\n")
		turns(t, 1, 2*time.Second, a, b)
		d.put(t, "a.log.1", "0 head\n1 one\n")
		d.empty(t, "a.log")
		turns(t, 1, 10*time.Second, a, b)
		wantLines(t, d, a, b, "0 head", "1 one")
		stop(t, a, b)
		a2, b2 := d.restarted(t, a, b)
		d.put(t, "a.log", "0 head\n")
		turns(t, 1, 10*time.Second, a2, b2)
		wantLines(t, d, a2, b2, "0 head")
		d.put(t, "a.log", "2 two\n")
		d.put(t, "a.log.1", "3 three\n")
		turns(t, 1, 10*time.Second, a2, b2)
		wantLines(t, d, a2, b2, "0 head", "2 two", "3 three")
		d.wantNoLoss(t)
		if a2.ids["2 two"] == a2.ids["3 three"] {
			t.Errorf("two files have the id %s", a2.ids["2 two"])
		}
	})
}

// A route has given a file an id and could not read it when the other route sees that the file was
// moved. It reads the copy, knows it when that is moved again, and does not say that anything was
// lost.
func TestMovedBeforeAnythingWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.log", three)
		a.run(t, time.Second)
		reads := 0
		d.fault = func(string) error {
			if reads++; reads == 1 { // by which the file is known
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
