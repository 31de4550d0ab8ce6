//go:build !unix

package osfs_test

import "github.com/penstock-io/penstock/vfs/vfstest"

func plant(*vfstest.Harness) {}
