package follow_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
