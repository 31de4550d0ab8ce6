package vfstest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/penstock-io/penstock/vfs"
)

// TestWriteParts checks that several calls of vfs.WriteParts write the concatenation of their
// parts. Some calls have more parts than one system call takes. The parameter root names a
// directory, which TestWriteParts makes if it is missing.
func TestWriteParts(t *testing.T, system vfs.FS, root string) {
	t.Helper()
	dir, err := system.MakeDir(root, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := dir.OpenFile("parts", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("the file has %d bytes that differ from the %d of the parts in their order", n,
			len(want))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteParts(f, [][]byte{{'a'}, {'b'}}); err == nil {
		t.Error("WriteParts to a closed file: no error")
	}
}
