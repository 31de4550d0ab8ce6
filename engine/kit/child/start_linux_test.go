package child_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock-io/penstock/engine/kit/child"
)

// TestTemporaryStartFailure checks that a program that cannot start now, because its file is being
// written, does not count as one that can never start.
func TestTemporaryStartFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("#!/bin/sh\n"); err != nil {
		t.Fatal(err)
	}
	_, err = output(t, child.Spec{Command: []string{path}}, "")
	_, never := errors.AsType[*child.StartError](err)
	if never || !errors.Is(err, syscall.ETXTBSY) {
		t.Errorf("Run: %v, want %v and no StartError", err, syscall.ETXTBSY)
	}
}
