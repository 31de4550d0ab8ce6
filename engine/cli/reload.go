package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/admin"
)

const (
	// watchInterval is the time between two looks at a watched config.
	watchInterval = time.Second

	// maxWatched bounds the bytes that are read of a watched config, to compare it.
	maxWatched = 16 << 20
)

type reloadFlags struct {
	json    bool
	timeout time.Duration
}

func (p *program) reloadCommand() *cobra.Command {
	var f reloadFlags
	cmd := &cobra.Command{
		Use:   "reload [--json] CONFIG|ADDRESS",
		Short: "Make a running penstock reload its config",
		Long: `Reload makes the process that runs with a config read it again, and waits for the
result. Routes whose configuration is unchanged keep running. Changed and removed
routes drain, each within its ` + "`drain:`" + `, and new ones start from their checkpoints.

An invalid config changes nothing: the earlier one keeps running, and reload says
why and ends with exit code 1 (2 if the config is found invalid before the process
is asked). The state directory and ` + "`admin:`" + ` cannot be changed by a reload.

The process is asked at the config's ` + "`admin:`" + `, or at an address, host:port; there the
token is taken from ` + tokenVariable + `.`,
		Example: `  penstock reload /etc/penstock.yaml
  penstock reload 127.0.0.1:7070`,
		DisableFlagsInUseLine: true,
		Args:                  needs("a config or an address"),
		RunE:                  func(cmd *cobra.Command, args []string) error { return p.reload(cmd, args[0], f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one line of JSON")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "how long the reload may take")
	return cmd
}

func (p *program) reload(cmd *cobra.Command, target string, f reloadFlags) error {
	if f.timeout <= 0 {
		return usagef("reload: --timeout is %v; it must be above zero", f.timeout)
	}
	address, token, err := p.adminOf(target)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	r, err := admin.Reload(ctx, address, token)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no result after %v: the reload goes on; `penstock status --json` shows its result", f.timeout)
	}
	if err != nil {
		return err
	}
	if f.json {
		err = writeResult(cmd.OutOrStdout(), r)
	} else if r.OK {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "reloaded in %s\n", seconds(r.Seconds))
	}
	if err == nil && !r.OK {
		err = fmt.Errorf("not reloaded, the earlier config is still running: %s", r.Error)
	}
	return err
}

// watchedConfig reports when the file of a running config has changed. A change is reported when
// two looks in a row have seen the same new content, so that a half-written file is not loaded. It
// is not safe for concurrent use.
type watchedConfig struct {
	path    string
	applied [sha256.Size]byte // of the content that was last reported, or of the start
	seen    [sha256.Size]byte // of the last look
}

func watchConfig(path string) *watchedConfig {
	w := &watchedConfig{path: path}
	w.applied = w.sum()
	w.seen = w.applied
	return w
}

// changed takes a look.
func (w *watchedConfig) changed() bool {
	now := w.sum()
	stable := now == w.seen
	w.seen = now
	if !stable || now == w.applied || now == [sha256.Size]byte{} {
		return false
	}
	w.applied = now
	return true
}

// sum returns the hash of the file's content, or zero if it cannot be read: it may be about to be
// replaced.
func (w *watchedConfig) sum() (sum [sha256.Size]byte) {
	f, err := os.Open(w.path)
	if err != nil {
		return sum
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxWatched)); err != nil {
		return sum
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// watch reloads the config at path whenever its content changes, until ctx is done.
func watch(ctx context.Context, path string, e runner) error {
	w := watchConfig(path)
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if w.changed() {
				_ = e.Reload(ctx) // logged and kept in the status by the engine
			}
		}
	}
}
