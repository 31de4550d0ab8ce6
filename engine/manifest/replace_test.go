package manifest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock/engine/manifest"
)

// TestReplace checks that a manifest replaces only another manifest or an empty file. Otherwise a
// wrong path could destroy the config or the checkpoint.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.json")
	for _, text := range []string{"pipelines:\n", "{", "{}\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := manifest.Create(path); err == nil {
			t.Errorf("a file with %q would be replaced", text)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	file, err := manifest.Create(path)
	if err == nil {
		err = os.WriteFile(path, []byte("delivered\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Write(&manifest.Manifest{Version: manifest.Version}); err == nil {
		t.Error("a file that the run has written was replaced")
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 { // replaces the empty file, and then the manifest
		file, err := manifest.Create(path)
		if err == nil {
			err = file.Write(&manifest.Manifest{Version: manifest.Version})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := manifest.Create(t.TempDir()); err == nil {
		t.Error("a directory would be replaced")
	}
}
