//go:build !unix

package vfs_test

import "github.com/penstock-io/penstock/vfs/vfstest"

func plant(*vfstest.Harness) {}
