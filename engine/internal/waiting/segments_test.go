package waiting

import (
	"os"
	"testing"
	"time"
)

// TestSegmentsOfManyRuns checks that the number of files stays bounded over many runs of a route,
// although each run begins another small segment.
func TestSegmentsOfManyRuns(t *testing.T) {
	path := t.TempDir()
	for n := range 40 {
		s, err := Open(dirOf(t, path), Options{})
		if err != nil {
			t.Fatal(err)
		}
		held := Range{Part: part(0), Range: span(0, 10), Records: 1, Bytes: 1}
		s.Hold([]Range{held}, wait(time.Hour, uint32(n+1)))
		if _, err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > maxSmall+1 {
		t.Errorf("%d files for one waiting range, want at most %d", len(files), maxSmall+1)
	}
}
