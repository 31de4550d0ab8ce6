package vfs_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestWriteParts holds what a file has after many gathered writes against the parts joined, on the real system, where one
// call takes only some of them, and on the one of tests, which gathers nothing.
func TestWriteParts(t *testing.T) {
	root := t.TempDir()
	for name, system := range map[string]vfs.FS{"system": vfs.OS(), "memory": vfstest.New()} {
		t.Run(name, func(t *testing.T) {
			dir, err := system.MakeDir(filepath.Join(root, name), 0o755)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			f, err := dir.OpenFile("out", os.O_RDWR|os.O_CREATE, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			rng := rand.New(rand.NewPCG(7, 7))
			var want []byte
			for _, count := range []int{0, 1, 2, 3, 100, 1024, 1025, 3000} {
				parts := make([][]byte, count)
				for i := range parts {
					parts[i] = make([]byte, rng.IntN(50)) // some are empty
					for j := range parts[i] {
						parts[i][j] = byte(rng.Uint32())
					}
					want = append(want, parts[i]...)
				}
				if err := vfs.WriteParts(f, parts); err != nil {
					t.Fatalf("%d parts: %v", count, err)
				}
			}
			got := make([]byte, len(want)+1)
			if n, _ := f.ReadAt(got, 0); !bytes.Equal(got[:n], want) {
				t.Errorf("the file has %d bytes, want the %d of the parts in their order", n, len(want))
			}
		})
	}
}

// TestWritePartsClosed: the error of the system comes through.
func TestWritePartsClosed(t *testing.T) {
	dir, err := vfs.OS().OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := dir.OpenFile("out", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := vfs.WriteParts(f, [][]byte{{'a'}, {'b'}}); err == nil {
		t.Errorf("a closed file took two parts")
	}
}
