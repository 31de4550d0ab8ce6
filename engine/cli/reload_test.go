package cli

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine"
)

func TestWatchedConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	w := watchConfig(path)
	for i, look := range []struct {
		content string // written before the look; "" leaves the file, "-" removes it
		want    bool
	}{
		{"", false},
		{"two", false}, // it may be half written
		{"", true},
		{"", false}, // reported once
		{"three", false},
		{"thre", false}, // still changing
		{"three", false},
		{"two", false}, // back to the applied content
		{"", false},
		{"-", false}, // a missing file is not loaded
		{"", false},
		{"four", false},
		{"", true},
	} {
		switch look.content {
		case "":
		case "-":
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		default:
			put(look.content)
		}
		if got := w.changed(); got != look.want {
			t.Errorf("look %d, after %q: changed = %v, want %v", i, look.content, got, look.want)
		}
	}
}

func TestWatchReloads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "penstock.yaml")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := newFake()
		ended := make(chan error, 1)
		w := watchConfig(path)
		go func() { ended <- w.watch(ctx, func() { _ = e.Reload(ctx) }) }()
		synctest.Wait()
		if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
			t.Fatal(err)
		}
		<-e.reloads // in virtual time
		cancel()
		if err := <-ended; err != nil || len(e.reloads) > 0 {
			t.Errorf("watch = %v, %d further reloads", err, len(e.reloads))
		}
	})
}

// TestWatchFindsChangeDuringStart changes the config after it was loaded and before the engine
// runs. With --watch, this change must be found.
func TestWatchFindsChangeDuringStart(t *testing.T) {
	inFolder(t)
	synctest.Test(t, func(t *testing.T) {
		e, signals := newFake(), make(chan os.Signal)
		p := newProgram(e, signals)
		assemble := p.assemble
		p.assemble = func(c engine.Config, o engine.Options) (runner, error) {
			text, err := os.ReadFile("penstock.yaml")
			if err != nil {
				return nil, err
			}
			if err = os.WriteFile("penstock.yaml", append(text, "# changed\n"...), 0o600); err != nil {
				return nil, err
			}
			return assemble(c, o)
		}
		ended := make(chan outcome, 1)
		go func() { ended <- p.try(t, "run", "--watch", "penstock.yaml") }()
		time.Sleep(5 * watchInterval)
		synctest.Wait()
		if len(e.reloads) != 1 {
			t.Errorf("%d reloads, want 1", len(e.reloads))
		}
		signals <- os.Interrupt
		if got := <-ended; got.code != exitOK {
			t.Errorf("%+v", got)
		}
	})
}
