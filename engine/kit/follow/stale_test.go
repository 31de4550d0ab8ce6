package follow_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/follow"
	"github.com/penstock-io/penstock/stream"
)

// TestRotatedAfterTheFirstListing checks files of an earlier run that are rotated after the first
// listing, but before the first look at them. Each new line must be delivered once.
func TestRotatedAfterTheFirstListing(t *testing.T) {
	const grown = "4 four\n"
	for _, tt := range []struct {
		name         string
		atRead       bool // then runs after the open and stat of the file, before its first read
		before, then func(t *testing.T, d *folder)
		want         []string
	}{
		{
			name:   "copied before, deleted after",
			before: func(t *testing.T, d *folder) { d.put(t, "a.log.1", three+grown) },
			then:   func(t *testing.T, d *folder) { d.delete(t, "a.log") },
			want:   []string{"4 four"},
		}, {
			name: "copied and deleted after",
			then: func(t *testing.T, d *folder) {
				d.put(t, "a.log.1", three+grown)
				d.delete(t, "a.log")
			},
			want: []string{"4 four"},
		}, {
			name: "copied and deleted after, and created again",
			then: func(t *testing.T, d *folder) {
				d.put(t, "a.log.1", three+grown)
				d.remove(t, "a.log")
				d.put(t, "a.log", "5 five\n")
			},
			want: []string{"4 four", "5 five"},
		}, {
			name: "renamed after, and created again",
			then: func(t *testing.T, d *folder) {
				d.rename(t, "a.log", "a.log.1")
				d.put(t, "a.log", "5 five\n")
			},
			want: []string{"4 four", "5 five"},
		}, {
			name: "renamed after to what is not listed",
			then: func(t *testing.T, d *folder) {
				d.rename(t, "a.log", "a.old")
				d.put(t, "a.log", "5 five\n")
			},
			want: []string{"4 four", "5 five"},
		}, {
			name: "rewritten before, renamed after to what is not listed",
			before: func(t *testing.T, d *folder) {
				d.empty(t, "a.log")
				d.put(t, "a.log", "6 six is longer than what was read\n")
			},
			then: func(t *testing.T, d *folder) { d.rename(t, "a.log", "a.old") },
			want: []string{"6 six is longer than what was read"},
		}, {
			name:   "copied before, truncated after",
			before: func(t *testing.T, d *folder) { d.put(t, "a.log.1", three+grown) },
			then:   func(t *testing.T, d *folder) { d.empty(t, "a.log") },
			want:   []string{"4 four"},
		}, {
			name:   "copied before, truncated while it is read",
			atRead: true,
			before: func(t *testing.T, d *folder) {
				d.put(t, "a.log.1", three+grown)
				d.age(t, "a.log.1")
			},
			then: func(t *testing.T, d *folder) { d.empty(t, "a.log") },
			want: []string{"4 four"},
		},
	} {
		for _, noted := range []bool{true, false} {
			t.Run(tt.name+map[bool]string{true: "",
				false: ", with the mark of a sink's ledger"}[noted], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d, a, _ := earlierRun(t)
					d.hidden = "old"
					d.put(t, "a.log", grown)
					if tt.before != nil {
						tt.before(t, d)
					}
					marks := maps.Clone(a.marks)
					if !noted {
						for id, m := range marks {
							marks[id] = stream.Mark{Part: m.Part, Watermark: m.Watermark}
						}
					}
					then := func() { tt.then(t, d) }
					if d.then = then; tt.atRead {
						d.then = nil
						d.hook = func(name string) {
							if name == "a.log" {
								d.hook = nil
								then()
							}
						}
					}
					r := newRoute(t, d.set(follow.Growing{}), marks)
					turns(t, 20, time.Second, r)
					r.want(t, d, tt.want...)
				})
			})
		}
	}
}

// TestFirstListingFails checks that, if the first listing of a process fails, the one-time steps of
// the first listing are done with the first successful one.
func TestFirstListingFails(t *testing.T) {
	t.Run("what was rotated while nothing ran is recognised", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, _ := earlierRun(t)
			d.put(t, "a.log.1", three+"4 four\n")
			d.delete(t, "a.log")
			d.torn = errors.New("too many open files")
			a2 := newRoute(t, d.set(follow.Growing{}), a.marks)
			turns(t, 20, time.Second, a2)
			a2.want(t, d, "4 four")
			if d.torn != nil {
				t.Error("no listing has failed")
			}
		})
	})
	t.Run("a start at the end is one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, _ := twoRoutes(t, follow.Growing{FromEnd: true})
			d.put(t, "a.log", "1 old\n")
			d.torn = errors.New("too many open files")
			a.run(t, 2*time.Second)
			d.put(t, "a.log", "2 new\n")
			a.run(t, 2*time.Second)
			a.want(t, d, "2 new")
			if d.torn != nil {
				t.Error("no listing has failed")
			}
		})
	})
}

// TestRestoredBackupIsWrittenTo checks a backup that is restored under its old name. Until it gets
// its old modification time, it looks like a new file with the same beginning, and is held back for
// copy_wait. If it is written to meanwhile, its content is delivered twice, not lost, and that is
// logged.
func TestRestoredBackupIsWrittenTo(t *testing.T) {
	for _, tt := range []struct {
		name string
		aged bool // its old time is set, and seen, before it is written to
		want []string
	}{
		{"after its time was set", true, []string{"1 one", "2 two", "3 three", "4 four"}},
		{"before its time could be seen", false,
			[]string{"1 one", "1 one", "2 two", "2 two", "3 three", "3 three", "4 four"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := earlierRun(t)
				d.remove(t, "a.log")
				d.put(t, "a.log", three)
				for range 3 { // each process holds it back again
					a2, b2 := d.restarted(t, a, b)
					turns(t, 1, 2*time.Second, a2, b2)
					if n := len(a2.lines) + len(b2.lines); n > 0 {
						t.Errorf("%d lines came before copy_wait was over", n)
					}
					stop(t, a2, b2)
				}
				a2, b2 := d.restarted(t, a, b)
				if tt.aged {
					d.age(t, "a.log")
				}
				turns(t, 2, time.Second, a2, b2)
				d.put(t, "a.log", "4 four\n")
				turns(t, 20, time.Second, a2, b2)
				for _, r := range [][2]*route{{a, a2}, {b, b2}} {
					r[1].lines = append(r[0].lines, r[1].lines...)
				}
				wantLines(t, d, a2, b2, tt.want...)
				const doubt = "has the name and the content of one that is gone"
				if said := strings.Contains(d.log.String(), doubt); said == tt.aged {
					t.Errorf("the log says that lines may data is repeated: %v, want %v:\n%s", said, !tt.aged, &d.log)
				}
			})
		})
	}
}
