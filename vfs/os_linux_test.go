package vfs_test

import (
	"testing"

	"github.com/penstock-io/penstock/vfs"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

func TestOSOnLinux(t *testing.T) { vfstest.TestLinux(t, vfs.OS()) }
