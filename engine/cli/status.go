package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/table"
	"github.com/penstock-io/penstock/engine/status"
)

// tokenVariable is the environment variable that has the admin token for commands with an ADDRESS.
const tokenVariable = "PENSTOCK_ADMIN_TOKEN"

type statusFlags struct {
	json, tree, cluster bool
	timeout             time.Duration
}

func (p *program) statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [--json] [--tree] [--cluster] CONFIG|ADDRESS",
		Short: "Print the state of a running penstock",
		Long: `Status prints the progress of each route of a running process, and for each worker the
window, the in-flight batches, and the state with its reason. It connects to the
address in the config's ` + "`admin:`" + `, or to the given address host:port. With an address,
the token is taken from ` + tokenVariable + `.

With --tree it shows every part of the process by its name: the time in its state, the
number of restarts, and the last failure.
With --cluster it shows which process runs each pipeline that a cluster shares.

The exit code is 1 if nothing responds, or if the process is not ready. Then it prints
the reasons. Examples: a route has stopped, drains or restarts; a worker is misconfigured
while data waits; no batch has settled for a minute while data waits; fewer than 16 MiB
are free on the disk. docs/operating.md lists all reasons.`,
		Example: `  penstock status /etc/penstock.yaml
  penstock status --tree 127.0.0.1:7070
  penstock status --json penstock.yaml | jq '.routes[].workers[] | {name, state}'`,
		Args: needs("a config or an address"),
		RunE: func(cmd *cobra.Command, args []string) error { return p.status(cmd, args[0], f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print one line of JSON")
	cmd.Flags().BoolVar(&f.tree, "tree", false,
		"print the supervised parts of the process, with restarts and "+
			"their reasons, as a tree")
	cmd.Flags().BoolVar(&f.cluster, "cluster", false,
		"print which process of the cluster runs each pipeline")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 5*time.Second,
		"time limit for the process's response")
	return cmd
}

func (p *program) status(cmd *cobra.Command, what string, f statusFlags) error {
	s, err := ask(p, cmd, what, f.timeout)
	if err != nil {
		return err
	}
	switch {
	case f.json:
		err = writeResult(cmd.OutOrStdout(), s)
	case f.cluster && s.Cluster == nil:
		err = errors.New("the process is not in a cluster: its config has no `state.nats`")
	case f.cluster:
		_, err = io.WriteString(cmd.OutOrStdout(), clusterText(s))
	case f.tree:
		_, err = io.WriteString(cmd.OutOrStdout(), statusTree(s, widthOf(cmd.OutOrStdout())))
	default:
		_, err = io.WriteString(cmd.OutOrStdout(), statusText(s))
	}
	if err == nil && !s.Ready {
		err = fmt.Errorf("not ready: %s", strings.Join(s.Why, "; "))
	}
	return err
}

// ask returns the status of the process that adminOf finds for the argument of a command.
func ask(p *program, cmd *cobra.Command, what string,
	timeout time.Duration) (*status.Status, error) {
	if err := checkTimeout(cmd, timeout); err != nil {
		return nil, err
	}
	address, token, err := p.adminOf(what)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	return admin.Ask(ctx, address, token)
}

// checkTimeout checks the flag --timeout of a command.
func checkTimeout(cmd *cobra.Command, timeout time.Duration) error {
	if timeout <= 0 {
		return usagef("%s: --timeout is %v; it must be above zero", cmd.Name(), timeout)
	}
	return nil
}

// adminOf returns the admin address and the token for the argument of a command. The argument is a
// config, which contains both, or an address. For an address, the token is in the environment
// variable tokenVariable.
func (p *program) adminOf(what string) (address, token string, err error) {
	if _, statErr := os.Stat(what); statErr != nil {
		if u, err := url.Parse(what); err == nil && u.Scheme == "http" && u.Host != "" {
			what = u.Host
		}
		if config.CheckAddress(what, true) == nil {
			return what, os.Getenv(tokenVariable), nil
		}
	}
	f, err := engine.Load(what, p.components...)
	if err != nil {
		return "", "", err
	}
	if !f.Admin.On() {
		return "", "", fmt.Errorf("%s has no `admin:`, so its process cannot be reached; add "+
			"`admin: 127.0.0.1:7070` and restart it", what)
	}
	return f.Admin.Address, f.Admin.Token, nil
}

// statusHead returns the first line of the status in text form: a summary of the process.
func statusHead(s *status.Status) string {
	ready := "ready"
	if !s.Ready {
		ready = "NOT READY"
	}
	return fmt.Sprintf("penstock %s, process %d, running for %s: %s\n\n", s.Program, s.PID, runTime(s.Seconds), ready)
}

func statusText(s *status.Status) string {
	var b strings.Builder
	b.WriteString(statusHead(s))
	rows := [][]string{{"route", "health", "read", "delivered", "dead", "dropped", "in flight",
		"waiting", "redelivered", "watermark age"}}
	workers := [][]string{{"route", "worker", "state", "gate", "window", "in flight", "round trip",
		"delivered", "failed", "throttled"}}
	for _, r := range s.Routes {
		name := r.Pipeline + "/" + r.Name
		rows = append(rows, []string{
			name, r.Health, thousands(r.ReadRecords), thousands(r.Delivered), thousands(r.Dead), thousands(r.Dropped),
			thousands(r.InFlight), thousands(r.Waiting), thousands(r.Redelivered), seconds(r.WatermarkAgeSeconds),
		})
		for _, w := range r.Workers {
			workers = append(workers, []string{
				name, printable(w.Name), w.State, w.Gate, strconv.FormatFloat(w.Window, 'f', 1, 64),
				strconv.Itoa(w.InFlight),
				seconds(w.RoundTrip), thousands(int64(w.Delivered)),
				thousands(int64(w.Failed + w.TimedOut)), thousands(int64(w.Throttled)),
			})
		}
	}
	b.WriteString(table.Text(rows, 2))
	b.WriteString(parkedText(s.Routes))
	if len(workers) > 1 {
		b.WriteString("\n" + table.Text(workers, 4))
	}
	if counters := sourceCounters(s); len(counters) > 1 {
		b.WriteString("\n" + table.Text(counters, 3))
	}
	for _, src := range s.Sources {
		if h := src.Held; h != nil && h.Files > 0 {
			fmt.Fprintf(&b, "%s: %s deleted files take %s bytes on disk until they are "+
				"read", src.Pipeline,
				thousands(int64(h.Files)), thousands(h.Bytes))
			fmt.Fprintf(&b, "; the oldest, %s, for %s: %s/%s has not read it\n",
				printable(h.Oldest), runTime(h.Age), src.Pipeline, h.Route)
		}
	}
	for _, r := range s.Routes {
		for _, line := range r.Environment {
			fmt.Fprintf(&b, "%s/%s: %s\n", r.Pipeline, r.Name, printable(line))
		}
		for _, w := range r.Workers {
			if w.State != "NORMAL" && w.Reason != "" {
				fmt.Fprintf(&b, "%s: %s\n", printable(w.Name), printable(w.Reason))
			}
		}
	}
	return b.String()
}

// clusterText returns a table of the leases that this process of the cluster knows.
func clusterText(s *status.Status) string {
	rows := [][]string{
		{"pipeline", "runs at", "epoch", "taken over here", "starved", "last answer"},
	}
	for _, l := range s.Cluster.Leases {
		node := printable(l.Node)
		switch {
		case l.Owned:
			node += " (this process)"
		case node == "":
			node = "nobody"
		}
		answer := "never"
		if l.Silent >= 0 {
			answer = runTime(l.Silent) + " ago"
		}
		rows = append(rows, []string{
			l.Pipeline, node, strconv.FormatUint(l.Epoch, 10),
			thousands(int64(l.Takeovers)), thousands(int64(l.Starved)), answer,
		})
	}
	c := s.Cluster
	here := fmt.Sprintf("node %s, bucket %s\n\n", printable(c.Node), printable(c.Bucket))
	text := statusHead(s) + here + table.Text(rows, 2)
	for _, l := range c.Leases {
		if l.Failure != "" {
			text += fmt.Sprintf("%s: %s\n", l.Pipeline, printable(l.Failure))
		}
	}
	return text
}

// sourceCounters returns a table of the source counters that are not 0.
func sourceCounters(s *status.Status) [][]string {
	rows := [][]string{{"route", "source", "counter", "count"}}
	add := func(of, source string, counters map[string]int64) {
		for _, name := range slices.Sorted(maps.Keys(counters)) {
			if n := counters[name]; n != 0 {
				rows = append(rows, []string{of, source, name, thousands(n)})
			}
		}
	}
	for _, r := range s.Routes {
		add(r.Pipeline+"/"+r.Name, r.Source, r.SourceCounters)
	}
	for _, src := range s.Sources {
		add(src.Pipeline, src.Name, src.Counters)
	}
	return rows
}

// seconds formats a time in a suitable unit. It returns "-" for 0.
func seconds(v float64) string {
	d := time.Duration(v * float64(time.Second))
	units := []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond}
	i := slices.IndexFunc(units, func(u time.Duration) bool { return d >= u })
	switch {
	case d <= 0:
		return "-"
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(units[i] / 10).String()
}

func runTime(v float64) string {
	return time.Duration(v * float64(time.Second)).Round(time.Second).String()
}
