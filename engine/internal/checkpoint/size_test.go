package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/stream"
)

const manyMarks = 100_000

// Size returns an upper bound of the size that a snapshot would have, and the size of the log.
func (s *Store) Size() (live, file int64) {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.st.live, s.size
}

// manyFiles returns marks like those of spool_dir. The id of such a mark consists of device, inode,
// birth time and a fingerprint, and its name is a path.
func manyFiles(n int) []stream.Mark {
	rng := rand.New(rand.NewPCG(seed, 70))
	marks := make([]stream.Mark, n)
	for i := range marks {
		marks[i] = stream.Mark{
			Part: stream.Partition{
				ID: fmt.Sprintf("fe00-%x-%x-%016x%016x-400",
					1000+i, 1_790_000_000_000_000_000+rng.Int64N(1e15), rng.Uint64(), rng.Uint64()),
				Name: fmt.Sprintf("hosts/web-%02d/access-2026-11-21-%06d.log", i%20, i),
			},
			Watermark: stream.Position{Num: rng.Int64N(1 << 30)},
			Metadata: fmt.Sprintf("%010x%010x%010x%010x", rng.Uint64N(1<<40), rng.Uint64N(1<<40),
				rng.Uint64N(1<<40), rng.Uint64N(1<<40)),
		}
	}
	return marks
}

// TestSizeUnderChurn updates 100,000 partitions repeatedly. An update must write less than 64
// bytes, and the size of the log must stay bounded.
func TestSizeUnderChurn(t *testing.T) {
	dir, err := osfs.New().OpenDir(t.TempDir())
	must(t, err)
	store, _ := mustOpen(t, dir, Options{Warn: func(err error) { t.Error(err) }})
	marks := manyFiles(manyMarks)
	for part := range slices.Chunk(marks, 1000) {
		must(t, store.Append("access/main", part, nil))
	}
	must(t, store.Sync())
	rng := rand.New(rand.NewPCG(seed, 71))
	updates, grown, largest, renewed := int64(0), int64(0), int64(0), 0
	// Continue for some time after the first replacements of the log.
	for rounds := 0; rounds < 3000 && renewed < 50; rounds++ {
		at := rng.IntN(manyMarks - 1000)
		some := marks[at : at+1+rng.IntN(1000)]
		for i := range some {
			m := &some[i]
			m.Watermark.Num += rng.Int64N(1 << 20)
			m.Above = m.Above[:0]
			for k := range int64(rng.IntN(4)) {
				from := m.Watermark.Num + (2*k+1)<<18
				m.Above = append(m.Above,
					stream.Range{From: stream.Position{Num: from},
						To: stream.Position{Num: from + 1<<18}})
			}
		}
		_, before := store.Size()
		must(t, store.Append("access/main", some, nil))
		if _, after := store.Size(); after > before {
			updates, grown = updates+int64(len(some)), grown+after-before
		}
		if renewed > 0 || largest > before {
			renewed++
		}
		if rng.IntN(200) == 0 {
			must(t, store.Sync())
		}
		_, size := store.Size()
		largest = max(largest, size)
	}
	live, size := store.Size()
	per := float64(grown) / float64(updates)
	t.Logf("%d updates of %.1f bytes; log %d bytes, at most %d, alive at most %d", updates, per,
		size, largest, live)
	if per >= 64 {
		t.Errorf("an update takes %.1f bytes, want less than 64", per)
	}
	if renewed == 0 {
		t.Error("the log was never renewed: the test has too few updates")
	}
	if largest > 40<<20 {
		t.Errorf("the log grew to %d bytes, want at most 40 MiB", largest)
	}
	must(t, store.Close())
	again, report := mustOpen(t, dir, Options{})
	if report.Marks != manyMarks {
		t.Errorf("reopened: %v, want %d marks", report, manyMarks)
	}
	for i := 0; i < manyMarks; i += 997 {
		if got, ok := again.Mark("access/main", marks[i].Part.ID); !ok ||
			fmt.Sprint(got) != fmt.Sprint(marks[i]) {
			t.Fatalf("Mark = %v, want %v", got, marks[i])
		}
	}
	live, size = again.Size()
	if size > live {
		t.Errorf("a snapshot of %d bytes; Size calls %d alive at most", size, live)
	}
	must(t, again.Close())
}

func BenchmarkOpenManyMarks(b *testing.B) {
	dir, err := osfs.New().OpenDir(b.TempDir())
	must(b, err)
	store, _ := mustOpen(b, dir, Options{})
	must(b, store.Append("access/main", manyFiles(manyMarks), nil))
	must(b, store.Close())
	b.ReportAllocs()
	for b.Loop() {
		store, _ := mustOpen(b, dir, Options{})
		must(b, store.Close())
	}
}

func BenchmarkAppendOneMark(b *testing.B) {
	dir, err := osfs.New().OpenDir(b.TempDir())
	must(b, err)
	store, _ := mustOpen(b, dir, Options{})
	marks := manyFiles(1)
	must(b, store.Append("access/main", marks, nil))
	b.ReportAllocs()
	for b.Loop() {
		marks[0].Watermark.Num++
		must(b, store.Append("access/main", marks, nil))
	}
	must(b, store.Close())
}
