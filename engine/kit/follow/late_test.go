package follow_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/kit/follow"
)

// A route that has much to send comes to the copy of a file long after it has listed it, when the time is over for which it waits for
// what leads on from that file, and when the copy has another name again. It is known all the same, and nothing comes twice.
func TestCopyIsLookedAtLate(t *testing.T) {
	for _, moves := range []int{0, 1, 2} { // how often the copy is renamed meanwhile
		t.Run(fmt.Sprint(moves, " renames"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				d.put(t, "a.log", "1 one\n2 two\n3 three\n")
				a.run(t, 2*time.Second)
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Fatal(err)
				}
				at := func(name string) string { return filepath.Join(d.path, name) }
				d.put(t, "a.log.1", "1 one\n2 two\n3 three\n4 four\n")
				d.put(t, "0.log", strings.Repeat("0 much\n", 100))
				err := errors.Join(
					os.Rename(at("a.log"), filepath.Join(t.TempDir(), "away")), // its inode is not used again
					os.Chtimes(at("0.log"), time.Unix(1, 0), time.Unix(1, 0)),  // it is read first
				)
				if err != nil {
					t.Fatal(err)
				}
				r := newRoute(t, d.set(follow.Growing{}), a.marks)
				for move := range moves + 1 {
					b := penstock.NewBatch(penstock.Limits{Bytes: 64})
					if err := r.Read(t.Context(), b); err != nil || !strings.HasPrefix(string(b.Data), "0 much") {
						t.Fatalf("the first batches are %q, %v", b.Data, err)
					}
					time.Sleep(time.Minute) // nobody asks for more
					if move < moves {
						if err := os.Rename(at(fmt.Sprint("a.log.", move+1)), at(fmt.Sprint("a.log.", move+2))); err != nil {
							t.Fatal(err)
						}
					}
				}
				for range 20 {
					r.run(t, time.Second)
				}
				got := slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
				if want := []string{"4 four"}; !slices.Equal(got, want) {
					t.Errorf("delivered %q, want %q; the log:\n%s", got, want, &d.log)
				}
			})
		})
	}
}

// The first listing has missed a file of an earlier run, as it may while the file is renamed, and the route has much else to send. When it
// has listed the file, and is about to give up waiting, it looks at it first.
func TestRenamedFileIsLookedAtLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a, b := twoRoutes(t, follow.Growing{})
		d.put(t, "a.7.x", "1 one\n2 two\n3 three\n")
		a.run(t, 2*time.Second)
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		at, away := func(name string) string { return filepath.Join(d.path, name) }, filepath.Join(t.TempDir(), "away")
		d.put(t, "a.7.x", "4 four\n")
		d.put(t, "0.log", strings.Repeat("0 much\n", 100))
		if err := errors.Join(os.Rename(at("a.7.x"), away), os.Chtimes(at("0.log"), time.Unix(1, 0), time.Unix(1, 0))); err != nil {
			t.Fatal(err)
		}
		r := newRoute(t, d.set(follow.Growing{}), a.marks)
		if err := r.Read(t.Context(), penstock.NewBatch(penstock.Limits{Bytes: 64})); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(away, at("a.26.x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // nobody asks for more
		for range 20 {
			r.run(t, time.Second)
		}
		got := slices.DeleteFunc(r.lines, func(line string) bool { return line == "0 much" })
		if want := []string{"4 four"}; !slices.Equal(got, want) {
			t.Errorf("delivered %q, want %q; the log:\n%s", got, want, &d.log)
		}
	})
}
