package connectortest

import (
	"testing"

	"github.com/penstock-io/penstock/engine/internal/osfs"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// FS returns the file system that the engine gives to connectors in production.
func FS() vfs.FS { return osfs.New() }

// NewHost returns a host over FS; see [streamtest.NewHost].
func NewHost(t testing.TB) *streamtest.Host {
	t.Helper()
	return streamtest.NewHostOn(t, FS())
}
