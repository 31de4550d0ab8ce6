//go:build !no_nats

package buffer

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// TestDirectoryLocked checks that a second store cannot use the directory of an open store.
// Otherwise the server of the second store would delete acknowledged data of the first one.
func TestDirectoryLocked(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	first, err := OpenStore(t.Context(), dir, DefaultOptions(), log)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Append(t.Context(), 1, []byte("acknowledged")); err != nil {
		t.Fatal(err)
	}
	second, err := OpenStore(t.Context(), dir, DefaultOptions(), log)
	if !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second store has opened: %v", err)
	}
	if err == nil {
		_ = second.Close()
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenStore(t.Context(), dir, DefaultOptions(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if text, err := again.Get(t.Context(), 1); string(text) != "acknowledged" {
		t.Errorf("the store has %q, %v", text, err)
	}
}

// TestLowerBytes checks that a store keeps its data if the option `bytes` is set below the store's
// size.
func TestLowerBytes(t *testing.T) {
	dir := t.TempDir()
	o := DefaultOptions()
	o.Sync = SyncInterval
	text := make([]byte, 8<<20)
	const envelopes = 12
	for _, size := range []stream.Size{1 << 30, 512 << 20, minBytes} {
		o.Bytes = size
		store, err := OpenStore(t.Context(), dir, o, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("bytes: %v: %v", size, err)
		}
		for n := uint64(1); size == 1<<30 && n <= envelopes; n++ {
			if err := store.Append(t.Context(), n, text); err != nil {
				t.Fatal(err)
			}
		}
		if first, last, _, err := store.State(t.Context()); first != 1 || last != envelopes {
			t.Errorf("bytes: %v: the store has %d-%d, %v; want 1-%d", size, first, last, err,
				envelopes)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
