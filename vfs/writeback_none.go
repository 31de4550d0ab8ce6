//go:build !(linux && (amd64 || arm64))

package vfs

import "errors"

func beginWriting(*osFile, int64, int64) error { return errors.ErrUnsupported }
