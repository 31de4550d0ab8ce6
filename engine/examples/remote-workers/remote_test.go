package main

import (
	"os"
	"testing"
)

// TestMain lets the test binary be a worker or the reader.
func TestMain(m *testing.M) {
	if isChild() {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestCompare does the job both ways, shortened. It fails unless each record is stored.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 6 s of real processes")
	}
	if err := compare(t.Context(), t.Output(), settings{seconds: 0.5}); err != nil {
		t.Error(err)
	}
}
