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

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/admin"
)

const (
	// watchInterval is the interval at which a config is checked for changes.
	watchInterval = time.Second

	// maxWatched is the maximum number of bytes of a file that are compared.
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

An invalid config changes nothing: the current one keeps running, and reload prints the
reason and ends with exit code 1, or 2 if this command itself finds the config invalid.
A reload cannot change the state directory, ` + "`admin:` and `telemetry:`" + `.

The command connects to the address in the config's ` + "`admin:`" + `, or to the given address
host:port. With an address, the token is taken from ` + tokenVariable + `.`,
		Example: `  penstock reload /etc/penstock.yaml
  penstock reload 127.0.0.1:7070`,
		Args: needs("a config or an address"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.reload(cmd, args[0], f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one line of JSON")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "time limit for the reload")
	return cmd
}

func (p *program) reload(cmd *cobra.Command, target string, f reloadFlags) error {
	if err := checkTimeout(cmd, f.timeout); err != nil {
		return err
	}
	address, token, err := p.adminOf(target)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	r, err := admin.Reload(ctx, address, token)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no result after %v: if the process has got the request, the reload "+
			"continues; `penstock status --json` shows its result", f.timeout)
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
		err = fmt.Errorf("not reloaded, the current config keeps running: %s", r.Error)
	}
	return err
}

// watchedConfig detects changes of the files of a config. It reports a change when two checks in a
// row have found the same new content. So a file is not loaded while its content still changes. It
// is not safe for concurrent use.
type watchedConfig struct {
	path    string
	applied [sha256.Size]byte // hash of the content last reported, or at the start
	seen    [sha256.Size]byte // hash of the content at the last check
}

// watchConfig returns a watchedConfig with the current content of the files. Call it before the
// config is loaded, so that a change during the load is found.
func watchConfig(path string) *watchedConfig {
	w := &watchedConfig{path: path}
	w.applied = w.sum()
	w.seen = w.applied
	return w
}

// changed checks the files once. It reports whether this check and the one before have found the
// same new content.
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

// sum returns the hash of the content of all files of the config. If a file cannot be read, for
// example while it is being replaced, sum returns zero.
func (w *watchedConfig) sum() (sum [sha256.Size]byte) {
	files, err := config.Files(w.path)
	if err != nil {
		return sum
	}
	h := sha256.New()
	for _, path := range files {
		if err := hashFile(h, path); err != nil {
			return sum
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// hashFile adds the name and the content of a file to h.
func hashFile(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(h, io.LimitReader(f, maxWatched))
	if err == nil {
		_, err = fmt.Fprintf(h, "\n%d bytes of %q\n", n, path)
	}
	return err
}

// watch calls changed when a file of the config changes, and when files are added or removed. It
// returns when ctx is done.
func (w *watchedConfig) watch(ctx context.Context, changed func()) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if w.changed() {
				changed()
			}
		}
	}
}

// reloader reloads the config of an engine, one reload at a time. Any number of requests during a
// reload cause one more reload after it.
type reloader struct {
	e        runner
	manager  *serviceManager
	requests chan struct{} // buffer of 1
}

func newReloader(e runner, m *serviceManager) *reloader {
	return &reloader{e: e, manager: m, requests: make(chan struct{}, 1)}
}

// request asks for a reload. It does not wait for it.
func (r *reloader) request() {
	select {
	case r.requests <- struct{}{}:
	default:
	}
}

// Run carries out the requests until ctx is done.
func (r *reloader) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.requests:
			r.manager.reload(ctx, r.e) // the engine logs the result and shows it in the status
		}
	}
}
