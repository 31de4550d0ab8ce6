package vfs_test

import (
	"testing"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func TestOSConforms(t *testing.T) {
	vfstest.TestFS(t, func(t *testing.T) vfstest.Harness {
		h := vfstest.Harness{FS: vfs.OS(), Root: t.TempDir()}
		plant(&h)
		return h
	})
}
