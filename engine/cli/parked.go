package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/stream"
)

// parkedResult is one parked delivery in `parked list|show|retry|cancel --json`. A sink that parks
// deliveries stores a delivery until its next attempt is due.
type parkedResult struct {
	Route string `json:"route"`
	stream.Delivery
}

// parkedStats are the counts of one route in `parked stats --json`.
type parkedStats struct {
	Route     string `json:"route"`
	Parked    int64  `json:"parked"`
	Exhausted int64  `json:"exhausted"` // these are included in Parked
	Done      int64  `json:"done"`
	Dead      int64  `json:"dead"`
	Cancelled int64  `json:"cancelled"`
}

// parkedEnd is the last line of the parked commands with --json.
type parkedEnd struct {
	OK         bool  `json:"ok"`
	Deliveries int64 `json:"deliveries"` // number of printed deliveries
}

type parkedFlags struct {
	json               bool
	route, host, state string
	limit              int
}

func (p *program) parkedCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "parked",
		Short: "List, retry or cancel deliveries that wait for their next attempt",
		Long: `A sink http with url: parks each record until its receiver has accepted it. These
commands read and change the parked deliveries of a config, whether or not a process
is running with it.`,
		Example: "  penstock parked list --state waiting penstock.yaml",
	})
	c := parkedCommands{p}
	for _, sub := range []parkedSub{
		{
			"list CONFIG", "Print parked deliveries", c.list,
			"List prints a line for each delivery, in the order of parking.",
		},
		{
			"show CONFIG KEY...", "Print deliveries with their histories",
			c.operate(stream.DeliveryStore.Delivery),
			"Show prints the newest delivery of each key with all of its attempts.",
		},
		{
			"retry CONFIG KEY...", "Make an attempt now", c.operate(stream.DeliveryStore.Retry),
			`Retry makes an extra attempt or poll of a waiting or exhausted delivery now. Then the
schedule continues. To deliver dead ones again, use
` + "`penstock dead replay`.",
		},
		{
			"cancel CONFIG KEY...", "End deliveries without another attempt",
			c.operate(stream.DeliveryStore.Cancel),
			"Cancel ends waiting and exhausted deliveries. An attempt in flight may still arrive.",
		},
		{
			"stats CONFIG", "Count parked deliveries", c.stats,
			`Stats prints how many records of each route are parked, and how many were accepted,
dead-lettered or cancelled since the store was created.`,
		},
	} {
		cmd.AddCommand(sub.command())
	}
	return cmd
}

// parkedCommands are the subcommands of `penstock parked`.
type parkedCommands struct{ program *program }

// parkedSub is one subcommand of `penstock parked`.
type parkedSub struct {
	use, short string
	run        func(*cobra.Command, []string, *parkedFlags) error
	long       string
}

func (s parkedSub) command() *cobra.Command {
	var f parkedFlags
	name, _, _ := strings.Cut(s.use, " ")
	keyed := strings.Contains(s.use, "KEY")
	example := "  penstock parked " + name + " penstock.yaml"
	if keyed {
		example += " order-4711"
	}
	cmd := &cobra.Command{
		Use: s.use, Short: s.short, Long: s.long, Example: example,
		Args: needs("a config"),
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args, &f) },
	}
	if keyed {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("%sneeds a config and at least one key: %s", named(cmd),
					cmd.UseLine())
			}
			return nil
		}
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON, one object a line")
	cmd.Flags().StringVar(&f.route, "route", "", "one route: PIPELINE/ROUTE")
	if name == "list" {
		cmd.Flags().StringVar(&f.host, "host", "", "deliveries to HOST or HOST:PORT")
		cmd.Flags().StringVar(&f.state, "state", "", "waiting, exhausted, done, dead or cancelled")
		cmd.Flags().IntVar(&f.limit, "limit", 0, "maximum number to print; 0 prints all")
	}
	return cmd
}

// each calls the function take for each route of a config that parks deliveries, and passes it the
// store of the route's parked deliveries. Routes that have not parked anything yet are omitted.
func (p parkedCommands) each(
	ctx context.Context, config string, f *parkedFlags,
	take func(route string, store stream.OpenDeliveryStore) error,
) error {
	c, err := engine.Load(config, p.program.components...)
	if err != nil {
		return err
	}
	var parking []string
	for pipe, route := range c.Routes() {
		name := pipe.Name + "/" + route.Name
		options, ok := route.Sink.Options.(stream.ParkingOptions)
		if !ok {
			continue
		}
		if parking = append(parking, name); f.route != "" && f.route != name {
			continue
		}
		dir := filepath.FromSlash(pipeline.SinkDir(pipe.Name, route.Name))
		store, err := options.OpenDeliveries(ctx, filepath.Join(c.State, dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(take(name, store), store.Close()); err != nil {
			return err
		}
	}
	switch {
	case len(parking) == 0:
		return usagef("parked: no route of %s parks deliveries; a sink http with url: does", config)
	case f.route != "" && !slices.Contains(parking, f.route):
		return usagef("parked: no route %q parks deliveries; the routes that do are %s",
			f.route, strings.Join(parking, ", "))
	}
	return nil
}

// parkedPage is the number of deliveries that a list reads with one query.
const parkedPage = 500

func (p parkedCommands) list(cmd *cobra.Command, args []string, f *parkedFlags) error {
	w, end := cmd.OutOrStdout(), parkedEnd{OK: true}
	if f.limit < 0 {
		return usagef("parked list: --limit is %d; write 0 or more", f.limit)
	}
	list := func(route string, store stream.OpenDeliveryStore) error {
		filter := stream.DeliveryFilter{Host: f.host, State: f.state}
		for f.limit == 0 || end.Deliveries < int64(f.limit) {
			filter.Limit = parkedPage
			if f.limit > 0 {
				filter.Limit = min(parkedPage, f.limit-int(end.Deliveries))
			}
			page, err := store.List(cmd.Context(), filter)
			if errors.Is(err, stream.ErrBadFilter) {
				return usagef("parked list: %v", err)
			}
			if err != nil || len(page) == 0 {
				return err
			}
			for _, d := range page {
				filter.After = d.ID
				end.Deliveries++
				if err := writeParked(w, route, d, f.json, false); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err := p.each(cmd.Context(), args[0], f, list)
	if err != nil {
		return err
	}
	if f.json {
		return writeResult(w, end)
	}
	_, err = fmt.Fprintln(w, counted(end.Deliveries, "delivery", "deliveries"))
	return err
}

// operate returns a command that calls the function ask for each delivery key in its arguments. For
// each key it tries one route after another, until a route has a delivery with this key. If ask
// fails for a key, the command continues with the others.
func (p parkedCommands) operate(
	ask func(stream.DeliveryStore, context.Context, string) (stream.Delivery, error),
) func(*cobra.Command, []string, *parkedFlags) error {
	return func(cmd *cobra.Command, args []string, f *parkedFlags) error {
		w, left, found := cmd.OutOrStdout(), args[1:], int64(0)
		var failed error
		operate := func(route string, store stream.OpenDeliveryStore) error {
			var missing []string
			for _, key := range left {
				d, err := ask(store, cmd.Context(), key)
				if errors.Is(err, stream.ErrNoDelivery) {
					missing = append(missing, key)
					continue
				}
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("%s: %w", escaped(key), err))
					continue
				}
				found++
				if err := writeParked(w, route, d, f.json, true); err != nil {
					return err
				}
			}
			left = missing
			return nil
		}
		if err := p.each(cmd.Context(), args[0], f, operate); err != nil {
			return errors.Join(err, failed)
		}
		for _, key := range left {
			failed = errors.Join(failed, fmt.Errorf("there is no delivery with the key %s; "+
				"`penstock parked list` prints all keys", escaped(key)))
		}
		if failed != nil || !f.json {
			return failed
		}
		return writeResult(w, parkedEnd{true, found})
	}
}

func (p parkedCommands) stats(cmd *cobra.Command, args []string, f *parkedFlags) error {
	w := cmd.OutOrStdout()
	routes := int64(0)
	show := func(route string, store stream.OpenDeliveryStore) error {
		c, err := store.Counts(cmd.Context())
		if err != nil {
			return err
		}
		routes++
		if f.json {
			return writeResult(
				w, parkedStats{route, c.Waiting, c.Exhausted, c.Delivered, c.Dead, c.Cancelled},
			)
		}
		exhausted := ""
		if c.Exhausted > 0 {
			exhausted = fmt.Sprintf(" (%s exhausted)", thousands(c.Exhausted))
		}
		_, err = fmt.Fprintf(w, "%s: %s parked%s; %s done, %s dead, %s cancelled\n", route,
			thousands(c.Waiting), exhausted, thousands(c.Delivered), thousands(c.Dead),
			thousands(c.Cancelled))
		return err
	}
	err := p.each(cmd.Context(), args[0], f, show)
	if err == nil && routes == 0 && !f.json {
		_, err = fmt.Fprintln(w, "nothing has been parked yet")
	}
	if err == nil && f.json {
		err = writeResult(w, parkedEnd{OK: true})
	}
	return err
}

// whenOf returns the next step of a delivery (an attempt or a poll) and the time of this step, as
// text. If the delivery has ended, it returns the time of its end. If no step is planned, the text
// says that the delivery waits for an operator.
func whenOf(d *stream.Delivery) string {
	switch {
	case !d.Ended.IsZero():
		return "ended " + d.Ended.Format(time.RFC3339)
	case d.Next.IsZero():
		return "waits for an operator"
	case d.Operation != nil:
		return fmt.Sprintf("poll %d at %s", d.Operation.Polls+1, d.Next.Format(time.RFC3339))
	case d.Attempt == 0:
		return "extra attempt at " + d.Next.Format(time.RFC3339)
	}
	return fmt.Sprintf("attempt %d of %d at %s", d.Attempt, d.Planned, d.Next.Format(time.RFC3339))
}

// writeParked prints a delivery as a summary line or, if whole is set, completely.
func writeParked(w io.Writer, route string, d stream.Delivery, json, whole bool) error {
	if json {
		return writeResult(w, parkedResult{route, d})
	}
	_, err := fmt.Fprintf(w, "%s  %s  %s  %s, %s\n", route, escaped(d.Key), escaped(d.URL), d.State,
		whenOf(&d))
	if err != nil || !whole {
		return err
	}
	for _, a := range d.Attempts {
		status := "-"
		if a.Status > 0 {
			status = strconv.Itoa(a.Status)
		}
		text := strings.TrimSpace(escaped(a.Detail) + "  " + escaped(a.Body))
		_, err := fmt.Fprintf(w, "  %s  %-6s  %3s  %6d ms  %s\n",
			a.At.Format(time.RFC3339), a.Event, status, a.Millis, text)
		if err != nil {
			return err
		}
	}
	return nil
}
