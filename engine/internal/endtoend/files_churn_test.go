package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/osfs"
)

// churnWait bounds the time until a running program has forgotten deleted files.
const churnWait = 2 * time.Minute

// TestChurnedFiles checks that the state grows with the number of existing files, and not with the
// number of all files that have ever existed.
func TestChurnedFiles(t *testing.T) {
	t.Parallel()
	s := filesScale()
	n := s.files / 2
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	manyFiles(t, in, n, 1)
	config := filesConfig(t, dir, "churn", "spool_dir: { path: ./in, finished: keep, forget: 1s }")
	state := filepath.Join(dir, "state-churn")
	most := 0.0
	for round := range 4 {
		if round > 0 { // all were deleted and as many created
			if err := os.Rename(in, filepath.Join(dir, fmt.Sprintf("gone%d", round))); err != nil {
				t.Fatal(err)
			}
			manyFiles(t, in, n, 1)
		}
		once(t, config)
		_, mib := marksIn(t, state)
		most = max(most, mib)
	}
	t.Run("forgotten", func(t *testing.T) {
		start(t, "run", config)
		deadline := time.Now().Add(churnWait)
		for marks, _ := marksIn(t, state); marks > n; marks, _ = marksIn(t, state) {
			if time.Now().After(deadline) {
				t.Fatalf("after %v there are %d marks, of %d files that are there", churnWait,
					marks, n)
			}
			pause(t.Context(), 100*time.Millisecond)
		}
	})
	once(t, config) // which starts a log of the existing files
	marks, mib := marksIn(t, state)
	if marks != n {
		t.Errorf("%d marks are left of %d files that are there", marks, n)
	}
	f := bounded{t: t, about: fmt.Sprintf(
		"spool_dir, %d files of which all were replaced three times", n)}
	scaled := float64(n) / 50_000
	f.most("state with what is gone", most, 40*scaled, "MiB")
	f.most("state when that was forgotten", mib, 10*scaled, "MiB")
	if len(f.missed) > 0 {
		t.Error(f.missed)
	}
}

// marksIn returns the number of partitions with progress (marks) in a checkpoint, and its size in
// MiB.
func marksIn(t *testing.T, state string) (marks int, mib float64) {
	t.Helper()
	dir, err := osfs.New().OpenDir(state)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	snapshot, _, err := checkpoint.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range snapshot.Routes {
		marks += len(r.Marks)
	}
	info, err := dir.Stat(checkpoint.Name)
	if err != nil {
		t.Fatal(err)
	}
	return marks, float64(info.Size) / (1 << 20)
}
