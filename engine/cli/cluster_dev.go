package cli

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/cluster"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/supervise"
)

const (
	devPublishEvery = 10 * time.Millisecond
	devReportEvery  = 2 * time.Second
	devRestartAfter = 2 * time.Second
	devDrain        = 10 * time.Second // maximum time for a process to drain; then it is killed
)

// devNodes are the names of the processes of `cluster dev`.
var devNodes = []string{"a", "b", "c"}

// devConfig is the config of `cluster dev`.
const devConfig = `admin: off
state:
  dir: state-${PENSTOCK_NODE}
  nats: { url: "${PENSTOCK_NATS}", node: "${PENSTOCK_NODE}", replicas: 1 }
pipelines:
  orders:
    source: { nats: { url: "${PENSTOCK_NATS}", stream: orders } }
    sink: { sqlite: { path: ./orders.db, table: orders, columns: { message: text } } }
`

func clusterCommand(p *program) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "cluster",
		Short: "Run a cluster on this machine, to try it",
		Long: `Processes with the same config and state.nats share the work: one of them runs each
pipeline, and another one takes over if it dies. On real machines, each process is
started with penstock run, and status --cluster shows the owners.`,
		Example: "  penstock cluster dev",
	})
	var dir string
	var kill time.Duration
	dev := &cobra.Command{
		Use:   "dev [--dir DIR] [--kill-every DURATION]",
		Short: "Run three processes that share a pipeline over an embedded NATS server",
		Long: `Dev starts a NATS server on loopback in this process, publishes messages to a stream,
and starts three processes with one config. One of them owns the pipeline and delivers
into a SQLite file. If that process is killed, another one takes over after about 8 s.
The command prints the owner of the pipeline, and counts the rows.

It runs until it is interrupted. Then it waits until each message is delivered, and
fails unless the table contains each message exactly once. With --dir, the config, the
logs of the processes and the table are kept.`,
		Example: `  penstock cluster dev
  penstock cluster dev --kill-every 20s --dir ./dev`,
		Args: nothing,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if kill < 0 || kill > 0 && kill < time.Second {
				return usagef("cluster dev: --kill-every is %v, want 1s or more", kill)
			}
			at := dir
			if at == "" {
				if at, err = os.MkdirTemp("", "penstock-cluster-"); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
			}
			return clusterDev(cmd.Context(), p, cmd.OutOrStdout(), at, kill)
		},
	}
	dev.Flags().StringVar(&dir, "dir", "",
		"empty or new `DIR` for config, logs and data; default: removed at the end")
	dev.Flags().DurationVar(&kill, "kill-every", 0, "interval between kills of the owner; 0: never")
	cmd.AddCommand(dev)
	return cmd
}

// dev is a cluster of several processes on one machine, to try it out.
type dev struct {
	dir    string
	bin    string
	began  time.Time
	server *cluster.DevServer
	db     *sql.DB

	mu   sync.Mutex // guards the fields below
	out  io.Writer
	pids map[string]*os.Process // by node, while it runs
}

func clusterDev(ctx context.Context, p *program, out io.Writer, dir string,
	kill time.Duration) (err error) {
	d := &dev{dir: dir, began: time.Now(), out: out, pids: make(map[string]*os.Process)}
	if d.bin, err = os.Executable(); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	signals, stop := p.notify()
	defer stop()
	if d.server, err = cluster.StartDevServer(ctx, filepath.Join(dir, "nats")); err != nil {
		return err
	}
	defer d.server.Close()
	// The nodes create the table.
	if d.db, err = sql.Open("sqlite", filepath.Join(dir, "orders.db")); err != nil {
		return err
	}
	defer d.db.Close()
	nodes := supervise.NewGroup(ctx)
	for _, node := range devNodes {
		nodes.Go("node "+node, func(ctx context.Context) error { return d.keep(ctx, node) })
	}
	published, err := d.watch(ctx, signals, kill)
	if err == nil {
		err = d.finish(ctx, published)
	}
	nodes.Stop(nil)
	return errors.Join(err, nodes.Wait())
}

// prepare creates the directory and writes the config. It returns an error if the directory is not
// empty.
func (d *dev) prepare() error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	old, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	if len(old) > 0 {
		return usagef("cluster dev: %s is not empty: give a new directory", d.dir)
	}
	return os.WriteFile(d.config(), []byte(devConfig), 0o600)
}

func (d *dev) config() string { return filepath.Join(d.dir, "penstock.yaml") }

// say prints a line that begins with the seconds since the start of the command.
func (d *dev) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%5.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// keep runs a node until ctx is done. When the node ends, keep restarts it.
func (d *dev) keep(ctx context.Context, node string) error {
	for ctx.Err() == nil {
		err := d.run(ctx, node)
		if ctx.Err() != nil {
			break
		}
		d.say("%s has ended (%s); it restarts in %v", node, reasonOf(err), devRestartAfter)
		_ = retry.Sleep(ctx, devRestartAfter) // an error means that ctx is done
	}
	return nil
}

func reasonOf(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// run runs a node once.
func (d *dev) run(ctx context.Context, node string) error {
	log, err := os.OpenFile(filepath.Join(d.dir, node+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, d.bin, "run", d.config())
	cmd.Env = append(os.Environ(), "PENSTOCK_NODE="+node, "PENSTOCK_NATS="+d.server.URL())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = devDrain
	if err := cmd.Start(); err != nil {
		return err
	}
	d.mu.Lock()
	d.pids[node] = cmd.Process
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.pids, node)
	}()
	return cmd.Wait()
}

// watch publishes messages, prints reports and, at the interval kill, kills the process that owns
// the pipeline. It ends when a signal arrives. It returns the number of published messages.
func (d *dev) watch(ctx context.Context, signals <-chan os.Signal,
	kill time.Duration) (published int, err error) {
	publish, report := time.NewTicker(devPublishEvery), time.NewTicker(devReportEvery)
	defer publish.Stop()
	defer report.Stop()
	killing := time.NewTicker(cmp.Or(kill, time.Hour))
	defer killing.Stop()
	owner := ""
	for {
		select {
		case <-publish.C:
			if published, err = d.server.Publish(ctx); err != nil {
				return published, err
			}
		case <-report.C:
			owners, err := d.server.Owners(ctx, "penstock")
			if err != nil {
				return published, err
			}
			if now := owners["orders"]; now != owner {
				owner = now
				d.sayOwner(owner)
			}
			rows, distinct := d.count()
			d.say("%s published, %s in the table, %d twice", thousands(int64(published)),
				thousands(rows), rows-distinct)
		case <-killing.C:
			if kill > 0 && owner != "" {
				d.kill(owner)
			}
		case <-signals:
			return published, nil
		case <-ctx.Done():
			return published, nil
		}
	}
}

func (d *dev) sayOwner(owner string) {
	d.mu.Lock()
	process := d.pids[owner]
	running := slices.Sorted(maps.Keys(d.pids))
	d.mu.Unlock()
	switch {
	case owner == "":
		d.say("no process owns the pipeline orders")
	case process == nil:
		d.say("%s owns the pipeline orders and has ended; standby: %q", owner, running)
	default:
		d.say("%s owns the pipeline orders; to kill it: kill -9 %d", owner, process.Pid)
	}
}

func (d *dev) kill(node string) {
	d.mu.Lock()
	process := d.pids[node]
	d.mu.Unlock()
	if process != nil {
		d.say("killing %s", node)
		_ = process.Kill()
	}
}

// count returns the number of rows and the number of distinct rows. Both are 0 if the table does
// not exist.
func (d *dev) count() (rows, distinct int64) {
	const query = "SELECT count(*), count(DISTINCT message) FROM orders"
	_ = d.db.QueryRow(query).Scan(&rows, &distinct)
	return rows, distinct
}

// finish waits until each message is in the table, for at most a minute. If a message is then
// missing or repeated, finish returns an error.
func (d *dev) finish(ctx context.Context, published int) error {
	d.say("waiting until %s messages are in the table", thousands(int64(published)))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(devReportEvery / 10)
	defer tick.Stop()
	for {
		rows, distinct := d.count()
		if distinct >= int64(published) || ctx.Err() != nil {
			d.say("%s published, %s in the table, %d twice", thousands(int64(published)),
				thousands(rows), rows-distinct)
			if rows != int64(published) || distinct != rows {
				return fmt.Errorf("the table has %d rows, %d of them distinct; want each of %d "+
					"once", rows, distinct, published)
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
