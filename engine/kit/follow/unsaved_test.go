package follow_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestUnsavedEndIsReported checks deleted files with ends that were read, but not delivered when
// the route restarted. A file that is no longer open is reported as lost, with the number of bytes.
func TestUnsavedEndIsReported(t *testing.T) {
	type reading func(time.Duration)
	for _, tt := range []struct {
		name  string
		lose  func(t *testing.T, d *folder, read reading)
		bytes int64
		want  []string // delivered after the restart
	}{
		{name: "too many are kept open", lose: func(t *testing.T, d *folder, read reading) {
			d.delete(t, "a.log")
			read(5 * time.Second)
			d.delete(t, "b.log")
			read(40 * time.Second)
		}, bytes: 8, want: []string{"3 three"}},
		{name: "it cannot be read", lose: func(t *testing.T, d *folder, read reading) {
			read(time.Second)
			d.put(t, "b.log", "4 four\n")
			d.delete(t, "b.log")
			d.fault = func(name string) error {
				if name == "b.log" {
					return syscall.EIO
				}
				return nil
			}
			read(2 * time.Second)
		}, bytes: 8 + 7, want: []string{"3 three"}},
		{name: "its name is used again", lose: func(t *testing.T, d *folder, read reading) {
			d.delete(t, "a.log")
			read(5 * time.Second)
			d.delete(t, "b.log")
			read(40 * time.Second)
			d.put(t, "b.log", "5 five\n")
		}, bytes: 8, want: []string{"3 three", "5 five"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _, _ := twoRoutes(t, follow.Growing{})
				s := d.setOf(follow.Growing{}, 4)
				s.BeginRun()
				t.Cleanup(s.EndRun)
				lost := make(map[string]int64)
				open := func(stored map[string]stream.Mark) *route {
					o := knows(stored)
					o.Route = "a"
					o.Count = func(name string, n int64) { lost[name] += n }
					r := &route{Reader: s.Open(o), ids: make(map[string]string), marks: make(map[string]stream.Mark)}
					maps.Copy(r.marks, stored)
					d.setProgress("a", r.marks)
					d.routes = []string{"a"}
					return r
				}
				a := open(nil)
				d.put(t, "a.log", three[:12])
				d.put(t, "b.log", "x"+three[1:12])
				turns(t, 1, 2*time.Second, a)
				d.put(t, "a.log", three[12:])
				d.put(t, "b.log", three[12:])
				tt.lose(t, d, func(long time.Duration) { undelivered(t, 1, long, a) })
				stop(t, a)
				for range 2 { // a second restart does not report it again
					a2 := open(a.marks)
					turns(t, 1, 40*time.Second, a2)
					a2.want(t, d, tt.want...)
					a, tt.want = a2, nil
					stop(t, a)
				}
				n, isLogged := lost["bytes_vanished"], strings.Contains(d.log.String(), "are lost")
				if n != tt.bytes || !isLogged {
					t.Errorf("%d bytes are lost, want %d; the log:\n%s", n, tt.bytes, &d.log)
				}
			})
		})
	}
}

// TestSavedEndIsNotLost checks that a restart reports no loss if the end of a deleted file was
// saved, or if a copy holds it.
func TestSavedEndIsNotLost(t *testing.T) {
	for _, copied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, _, _ := twoRoutes(t, follow.Growing{})
			s := d.setOf(follow.Growing{}, 4)
			s.BeginRun()
			t.Cleanup(s.EndRun)
			a := d.open(s, "a", nil)
			for _, name := range []string{"a.log", "b.log"} {
				d.put(t, name, name+three[:12])
			}
			turns(t, 1, 2*time.Second, a)
			a.lines = nil
			for _, name := range []string{"a.log", "b.log"} {
				d.put(t, name, three[12:])
				d.delete(t, name)
				read := turns
				if copied {
					read = undelivered
				}
				read(t, 1, 5*time.Second, a)
			}
			if copied {
				undelivered(t, 1, 40*time.Second, a)
				d.put(t, "b.log.1", "b.log"+three)
			} else {
				turns(t, 1, 40*time.Second, a)
			}
			stop(t, a)
			a2 := d.open(s, "a", a.marks)
			turns(t, 1, 40*time.Second, a2)
			a.lines = append(a.lines, a2.lines...)
			a.want(t, d, "3 three", "3 three")
			d.wantNoLoss(t)
			stop(t, a2)
		})
	}
}

// undelivered lets the routes run as turns does, but their batches are lost.
func undelivered(t *testing.T, n int, each time.Duration, routes ...*route) {
	t.Helper()
	enough := errors.New("enough")
	for range n {
		for _, r := range routes {
			ctx, cancel := context.WithTimeoutCause(t.Context(), each, enough)
			for ctx.Err() == nil {
				if err := r.Read(ctx, stream.NewBatch(stream.BatchLimits{})); err != nil &&
					!errors.Is(err, enough) {
					t.Error(err)
					break
				}
			}
			cancel()
		}
	}
}
