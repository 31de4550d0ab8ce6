package osfs_test

import (
	"testing"

	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func TestConforms(t *testing.T) {
	vfstest.TestFS(t, func(t *testing.T) vfstest.Harness {
		h := vfstest.Harness{FS: osfs.New(), Root: t.TempDir()}
		plant(&h)
		return h
	})
}

func TestWriteParts(t *testing.T) { vfstest.TestWriteParts(t, osfs.New(), t.TempDir()) }
