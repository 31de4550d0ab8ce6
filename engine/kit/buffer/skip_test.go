package buffer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/vfs"
)

// TestFullSkipped checks a full buffer in which an operator skips intact envelopes. The buffer must
// then accept data again. The skipped envelopes must not be read, and must be counted and logged.
// All other envelopes must be read.
func TestFullSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(kept)
		o := Options{Bytes: minBytes, Sync: SyncAlways}
		p := start(t, store, o, intake.Options{})
		const envelopes = minBytes >> 20
		for n := range envelopes {
			p.add(t, fmt.Sprint(n+1)+strings.Repeat("x", 1<<20))
		}
		p.b.mu.Lock()
		if !p.b.isFull(p.b.oldest) {
			t.Errorf("%d bytes do not fill the buffer", p.b.bytes)
		}
		p.b.mu.Unlock()
		p.stop(t)

		o.Skip = fmt.Sprintf("1-%d", envelopes-1)
		p = start(t, store, o, intake.Options{})
		r := &route{name: streamtest.Route}
		r.open(t, p)
		texts, b, err := r.read(t)
		if err != nil || len(texts) != 1 || !strings.HasPrefix(texts[0], fmt.Sprint(envelopes)+"x") {
			t.Fatalf("read %.10q, %v; want only envelope %d", texts, err, envelopes)
		}
		r.commit(t, b)
		p.add(t, "more") // waits until there is room
		r.commit(t, r.want(t, "more"))
		if n := p.host.Counted("buffer_skipped"); n != envelopes-1 {
			t.Errorf("%d envelopes count as skipped, want %d", n, envelopes-1)
		}
		p.stop(t)
		if want := "envelopes skipped by an operator's decision"; !strings.Contains(p.log.String(),
			want) {
			t.Errorf("the log has no %q:\n%s", want, p.log.String())
		}
	})
}

// TestStaleSkips checks a decision to skip envelopes that the store has then lost. New envelopes
// get the same numbers. The decision must not apply to them.
func TestStaleSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, path := new(kept), t.TempDir()
		again := func(o Options) *process { return startAt(t, path, store, o, intake.Options{}) }
		p := again(DefaultOptions())
		for _, text := range []string{"1", "2", "3"} {
			p.add(t, text)
		}
		p.stop(t)

		state, err := vfs.OS().OpenDir(path)
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		command := &inspection{state: state, store: store, recorded: 3}
		if err := command.Skip(t.Context(), 2, 3); err != nil {
			t.Fatal(err)
		}
		delete(store.texts, 3)
		store.last = 2
		if err := command.Skip(t.Context(), 3, 3); err != nil { // give the lost envelope up
			t.Fatal(err)
		}

		p = again(DefaultOptions())
		p.add(t, "new 3")
		p.stop(t)
		p = again(DefaultOptions()) // the decision is also forgotten at later starts
		r := &route{name: streamtest.Route}
		r.open(t, p)
		r.want(t, "1", "new 3")
		if n := p.host.Counted("buffer_skipped"); n != 1 {
			t.Errorf("%d envelopes count as skipped, want 1", n)
		}
		p.stop(t)

		o := DefaultOptions()
		o.Skip = "3-4"
		p = again(o)
		if _, err := p.b.Open(t.Context(), stream.OpenOptions{Route: r.name}); err == nil ||
			!strings.Contains(err.Error(), "the store ends at envelope 3") {
			t.Errorf("skip: %s: %v", o.Skip, err)
		}
		_ = p.host.Stop() // reports the error again
	})
}

// TestSkipFile adds a decision to skip envelopes to a skipFile in which the previous decision is
// truncated, as after a crash or on a full disk. It also removes decisions about envelopes that the
// store has lost. Each remaining decision must keep its time.
func TestSkipFile(t *testing.T) {
	dir, err := vfs.OS().OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	const old = "2-3 2026-01-02T03:04:05Z"
	path := filepath.Join(dir.Path(), skipFile)
	if err := os.WriteFile(path, []byte(old+"\n17-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := addSkip(dir, span{17, 19}, time.Now()); err != nil {
		t.Fatal(err)
	}
	both := []span{{2, 3}, {17, 19}}
	if got, err := currentSkips(Options{}, dir, 19); err != nil || !slices.Equal(got, both) {
		t.Errorf("a store that ends at 19 skips %v, %v; want %v", got, err, both)
	}
	if got, err := currentSkips(Options{}, dir, 3); err != nil || !slices.Equal(got, both[:1]) {
		t.Errorf("a store that ends at 3 skips %v, %v; want 2-3", got, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != old+"\n" {
		t.Errorf("the file has %q, %v; want %q", text, err, old)
	}
}
