package follow_test

import (
	"errors"
	"maps"
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

// What a rotation does to a file of an earlier run after the first listing had it, and before it is looked at.
func TestRotatedAfterTheFirstListing(t *testing.T) {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const old, grown = "1 one\n2 two\n3 three\n", "4 four\n"
	for _, tt := range []struct {
		name         string
		atRead       bool // then comes when it was opened and asked for its size, before it is read
		before, then func(t *testing.T, d *folder, at func(name string) string)
		want         []string
	}{
		{
			name:   "copied before, deleted after",
			before: func(t *testing.T, d *folder, _ func(string) string) { d.put(t, "a.log.1", old+grown) },
			then:   func(t *testing.T, _ *folder, at func(string) string) { must(t, os.Remove(at("a.log"))) },
			want:   []string{"4 four"},
		}, {
			name: "copied and deleted after",
			then: func(t *testing.T, d *folder, at func(string) string) {
				d.put(t, "a.log.1", old+grown)
				must(t, os.Remove(at("a.log")))
			},
			want: []string{"4 four"},
		}, {
			name: "copied and deleted after, and made anew",
			then: func(t *testing.T, d *folder, at func(string) string) {
				d.put(t, "a.log.1", old+grown)
				must(t, os.Rename(at("a.log"), filepath.Join(t.TempDir(), "away"))) // its inode is not used again
				d.put(t, "a.log", "5 five\n")
			},
			want: []string{"4 four", "5 five"},
		}, {
			name: "renamed after, and made anew",
			then: func(t *testing.T, d *folder, at func(string) string) {
				must(t, os.Rename(at("a.log"), at("a.log.1")))
				d.put(t, "a.log", "5 five\n")
			},
			want: []string{"4 four", "5 five"},
		}, {
			name: "renamed after to what is not listed",
			then: func(t *testing.T, d *folder, at func(string) string) {
				must(t, os.Rename(at("a.log"), at("a.old")))
				d.put(t, "a.log", "5 five\n")
			},
			want: []string{"4 four", "5 five"},
		}, {
			name: "rewritten before, renamed after to what is not listed",
			before: func(t *testing.T, d *folder, at func(string) string) {
				must(t, os.Truncate(at("a.log"), 0))
				d.put(t, "a.log", "6 six is longer than what was read\n")
			},
			then: func(t *testing.T, _ *folder, at func(string) string) { must(t, os.Rename(at("a.log"), at("a.old"))) },
			want: []string{"6 six is longer than what was read"},
		}, {
			name:   "copied before, truncated after",
			before: func(t *testing.T, d *folder, _ func(string) string) { d.put(t, "a.log.1", old+grown) },
			then:   func(t *testing.T, _ *folder, at func(string) string) { must(t, os.Truncate(at("a.log"), 0)) },
			want:   []string{"4 four"},
		}, {
			name:   "copied before, truncated while it is read",
			atRead: true,
			before: func(t *testing.T, d *folder, at func(string) string) {
				d.put(t, "a.log.1", old+grown)
				must(t, os.Chtimes(at("a.log.1"), time.Unix(1, 0), time.Unix(1, 0))) // so that it is read first
			},
			then: func(t *testing.T, _ *folder, at func(string) string) { must(t, os.Truncate(at("a.log"), 0)) },
			want: []string{"4 four"},
		},
	} {
		for _, noted := range []bool{true, false} {
			t.Run(tt.name+map[bool]string{true: "", false: ", with the mark of a sink's ledger"}[noted], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d, a, b := twoRoutes(t, follow.Growing{})
					d.hidden = "old"
					d.put(t, "a.log", old)
					a.run(t, 2*time.Second)
					must(t, errors.Join(a.Close(), b.Close()))
					d.put(t, "a.log", grown)
					at := func(name string) string { return filepath.Join(d.path, name) }
					if tt.before != nil {
						tt.before(t, d, at)
					}
					marks := maps.Clone(a.marks)
					if !noted {
						for id, m := range marks {
							marks[id] = penstock.Mark{Part: m.Part, Watermark: m.Watermark}
						}
					}
					then := func() { tt.then(t, d, at) }
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
					for range 20 {
						r.run(t, time.Second)
					}
					if got := slices.Sorted(slices.Values(r.lines)); !slices.Equal(got, tt.want) {
						t.Errorf("delivered %q, want %q; the log:\n%s", got, tt.want, &d.log)
					}
				})
			})
		}
	}
}

// The first listing of a process fails: what has to be done once, with the first one, is done with the first that does not.
func TestFirstListingFails(t *testing.T) {
	t.Run("what was rotated while nothing ran is recognised", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a, b := twoRoutes(t, follow.Growing{})
			d.put(t, "a.log", "1 one\n2 two\n3 three\n")
			a.run(t, 2*time.Second)
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Fatal(err)
			}
			d.put(t, "a.log.1", "1 one\n2 two\n3 three\n4 four\n")
			if err := os.Remove(filepath.Join(d.path, "a.log")); err != nil {
				t.Fatal(err)
			}
			d.torn = errors.New("too many open files")
			a2 := newRoute(t, d.set(follow.Growing{}), a.marks)
			for range 20 {
				a2.run(t, time.Second)
			}
			if want := []string{"4 four"}; !slices.Equal(a2.lines, want) || d.torn != nil {
				t.Errorf("delivered %q, want %q; the log:\n%s", a2.lines, want, &d.log)
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
			if want := []string{"2 new"}; !slices.Equal(a.lines, want) || d.torn != nil {
				t.Errorf("delivered %q, want %q; the log:\n%s", a.lines, want, &d.log)
			}
		})
	})
}

// A backup is restored under its old name. As long as its time is not set to the old one, nothing tells it from a new file that begins as
// the old one did: it is held back for copy_wait. If it is written to meanwhile, what is there is delivered twice and not lost, and said.
func TestRestoredBackupIsWrittenTo(t *testing.T) {
	const old = "1 one\n2 two\n3 three\n"
	for _, tt := range []struct {
		name string
		aged bool // its time is set before it is written to, and seen
		want []string
	}{
		{"after its time was set", true, []string{"1 one", "2 two", "3 three", "4 four"}},
		{"before its time could be seen", false, []string{"1 one", "1 one", "2 two", "2 two", "3 three", "3 three", "4 four"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, a, b := twoRoutes(t, follow.Growing{})
				path := filepath.Join(d.path, "a.log")
				d.put(t, "a.log", old)
				a.run(t, 2*time.Second)
				b.run(t, 2*time.Second)
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(path, filepath.Join(t.TempDir(), "away")); err != nil { // its inode is not used again
					t.Fatal(err)
				}
				d.put(t, "a.log", old)
				for range 3 { // it is held back by each process anew
					s := d.set(follow.Growing{})
					a2, b2 := newRoute(t, s, a.marks), newRoute(t, s, b.marks)
					a2.run(t, 2*time.Second)
					b2.run(t, 2*time.Second)
					if n := len(a2.lines) + len(b2.lines); n > 0 {
						t.Errorf("%d lines came before copy_wait was over", n)
					}
					if err := errors.Join(a2.Close(), b2.Close()); err != nil {
						t.Fatal(err)
					}
				}
				s := d.set(follow.Growing{})
				a2, b2 := newRoute(t, s, a.marks), newRoute(t, s, b.marks)
				if tt.aged {
					if err := os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					a2.run(t, time.Second)
					b2.run(t, time.Second)
				}
				d.put(t, "a.log", "4 four\n")
				for range 20 {
					a2.run(t, time.Second)
					b2.run(t, time.Second)
				}
				for _, r := range [][2]*route{{a, a2}, {b, b2}} {
					r[1].lines = append(r[0].lines, r[1].lines...)
				}
				wantLines(t, d, a2, b2, tt.want...)
				if said := strings.Contains(d.log.String(), "comes twice if it was restored"); said == tt.aged {
					t.Errorf("the log says that lines may come twice: %v, want %v:\n%s", said, !tt.aged, &d.log)
				}
			})
		})
	}
}
