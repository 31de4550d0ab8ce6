package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
)

// letterResult is one dead letter in `dead list --json` and `dead show --json`. Only show prints
// the record.
type letterResult struct {
	deadletter.Entry
	Bytes    int  `json:"bytes"`    // size of the record
	Replayed bool `json:"replayed"` // settled by a replay or discard
}

// deadResult is the last line of `dead` commands with --json.
type deadResult struct {
	OK       bool          `json:"ok"`
	Error    string        `json:"error,omitempty"`
	Letters  int64         `json:"letters"`            // number of letters that the filters select
	Replayed int64         `json:"replayed"`           // of these, settled by this or an earlier replay or discard
	Skipped  int64         `json:"skipped"`            // number of lines in the files that are not letters
	Routes   []routeResult `json:"pipelines,omitzero"` // of a replay or discard
	// Others are the files with dead letters of routes that the config does not have.
	Others []string `json:"others,omitempty"`

	config engine.Config
	filter deadletter.Filter
	open   []deadRoute // routes with selected letters that are not settled
}

type deadFlags struct {
	json                        bool
	reason, since, until, route string
	all                         bool
	stall                       time.Duration
	logFormat, logLevel         string
}

func (p *program) deadCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "dead",
		Short: "List dead letters, deliver them again or discard them",
		Long: `A dead letter is a record that cannot be delivered unchanged: a receiver refused it,
or a processor failed on it. It is stored with the reason. When the cause is fixed,
replay delivers it again, through the route from which it came. If nobody needs the
record any more, discard settles it without a delivery.`,
		Example: "  penstock dead list penstock.yaml",
	})
	cmd.AddCommand(
		p.deadSub("list CONFIG", "Print the dead letters of a config, and their number for "+
			"each reason", p.deadList,
			`List prints a line for each letter that was not replayed or discarded: route by route,
and for each route in the order in which the letters were stored. Then it prints the
number of these letters for each of the 20 most frequent reasons. It only reads, and may
run beside penstock.

With --json it prints one object per letter, then one with "ok", and no reasons.`),
		p.deadSub("show CONFIG [ID]...", "Print dead letters in full, with their records",
			p.deadShow,
			`Show prints letters with all of their metadata and their records. Control bytes are
escaped, so that a record cannot control the terminal. Without an ID, it prints all
letters that were not replayed or discarded.

With --json it prints one object per letter, with the record, then one with "ok".`),
		p.deadSub("replay CONFIG", "Deliver dead letters again", p.deadReplay,
			`Replay delivers the letters again, through the processors and the sink of the route
from which they came. The route's checkpoint records the settled letters, so a second
replay sends none. After a kill, the next replay resumes, and repeats at most the
route's checkpoint.replay. A record that is refused again becomes a new letter.

Stop the running penstock first: replay needs the state directory to itself.`),
		p.deadSub("discard CONFIG", "Settle dead letters without a delivery", p.deadDiscard,
			`Discard marks letters as settled without delivering them. Discarded letters count as
replayed: a later replay does not send them, and list shows them with --all. They stay
in their file. Without a filter, discard needs --all. The sink of the route is not opened.

Stop the running penstock first, or discard the letters in its dashboard: this command
needs the state directory to itself.`))
	return cmd
}

func (p *program) deadSub(use, short string, run func(*cobra.Command, []string, *deadFlags) error,
	long string) *cobra.Command {
	var f deadFlags
	name, _, _ := strings.Cut(use, " ")
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Example: "  penstock dead " + name + " penstock.yaml\n  penstock dead " + name +
			" --reason 422 --since 2h penstock.yaml",
		Args: needs("a config"),
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd, args, &f) },
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON, one object a line")
	cmd.Flags().StringVar(&f.reason, "reason", "",
		"letters with this text in their reason, ignoring case")
	cmd.Flags().StringVar(&f.since, "since", "",
		"letters since a time, or since a duration ago, such as 90m")
	cmd.Flags().StringVar(&f.until, "until", "", "letters before a time, or before a duration ago")
	cmd.Flags().StringVar(&f.route, "route", "", "letters of one route: PIPELINE/ROUTE, or "+
		"PIPELINE for all of its routes")
	switch name {
	case "replay":
		cmd.Flags().DurationVar(&f.stall, "stall", 5*time.Minute, "give up after this time "+
			"without a delivery while letters wait")
		cmd.Flags().StringVar(&f.logFormat, "log-format", "text", "text or json")
		cmd.Flags().StringVar(&f.logLevel, "log-level", "warn", "debug, info, warn or error")
	case "discard":
		cmd.Flags().BoolVar(&f.all, "all", false, "discard all letters that the filters select; "+
			"needed if there is no filter")
		cmd.Example = strings.Replace(cmd.Example, "discard p", "discard --all p", 1)
	default:
		cmd.Flags().BoolVar(&f.all, "all", false, "include letters that were replayed or discarded")
	}
	if name == "show" {
		cmd.Example += "\n  penstock dead show penstock.yaml 2f1c9b7a04d35e68:1048576"
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("dead show needs a config: %s", cmd.UseLine())
			}
			return nil
		}
	}
	return cmd
}

func (f *deadFlags) filter(ids []string) (out deadletter.Filter, err error) {
	out = deadletter.Filter{Reason: f.reason, IDs: ids}
	now := time.Now()
	for _, bound := range []struct {
		flag, text string
		to         *time.Time
	}{{"since", f.since, &out.Since}, {"until", f.until, &out.Until}} {
		if bound.text == "" {
			continue
		}
		if *bound.to, err = deadletter.ParseTime(bound.text, now); err != nil {
			return out, usagef("dead: --%s: %v", bound.flag, err)
		}
	}
	if f.since != "" && f.until != "" && !out.Since.Before(out.Until) {
		return out, usagef("dead: --since (%s) is not before --until (%s): no letter matches",
			out.Since.Format(time.RFC3339), out.Until.Format(time.RFC3339))
	}
	return out, nil
}

// deadRoute is a route whose dead letters the arguments select.
type deadRoute struct {
	pipeline config.Pipeline
	route    config.Route
}

func (f *deadFlags) routes(c *config.Config) (out []deadRoute, err error) {
	var names []string
	for p, r := range c.Routes() {
		name := p.Name + "/" + r.Name
		names = append(names, name)
		if f.route == "" || f.route == name || f.route == p.Name {
			out = append(out, deadRoute{*p, *r})
		}
	}
	if len(out) == 0 {
		return nil, usagef("dead: the config has no route %q; it has %s", f.route, strings.Join(names, ", "))
	}
	return out, nil
}

// eachLetter calls take with each letter that the filters select. If neither --all nor ids are
// given, it omits the letters that a replay or discard has settled. The returned counts include the
// omitted letters.
func (p *program) eachLetter(
	path string, f *deadFlags, ids []string, take func(letterResult) error,
) (out deadResult, err error) {
	if out.config, err = engine.Load(path, p.components...); err != nil {
		return out, err
	}
	if out.filter, err = f.filter(ids); err != nil {
		return out, err
	}
	routes, err := f.routes(&out.config)
	if err != nil {
		return out, err
	}
	settled, err := pipeline.SettledLetters(p.files, out.config.State, pipeline.Boot())
	if err != nil {
		return out, err
	}
	for _, r := range routes {
		key, open := r.pipeline.Name+"/"+r.route.Name, false
		path := pipeline.LettersPath(r.pipeline, r.route)
		skipped, err := deadletter.Each(p.files, path, func(e *deadletter.Entry) error {
			if !out.filter.Takes(e) {
				return nil
			}
			done := settled[key+" "+deadletter.PartitionOf(e.ID)]
			out.Letters++
			if !done {
				open = true
			} else {
				out.Replayed++
				if !f.all && len(ids) == 0 {
					return nil
				}
			}
			return take(letterResult{*e, len(e.Text()), done})
		})
		if err != nil {
			return out, err
		}
		out.Skipped += int64(skipped)
		if open {
			out.open = append(out.open, r)
		}
	}
	if f.route == "" {
		if out.Others, err = otherLetters(&out.config); err != nil {
			return out, err
		}
	}
	out.OK = true
	return out, nil
}

func (p *program) deadList(cmd *cobra.Command, args []string, f *deadFlags) error {
	w := cmd.OutOrStdout()
	reasons := map[string]int64{}
	var order []string
	res, err := p.eachLetter(args[0], f, nil, func(l letterResult) error {
		if f.json {
			l.Record, l.RecordBase64 = nil, nil
			return writeResult(w, l)
		}
		if reasons[l.Reason]++; reasons[l.Reason] == 1 {
			order = append(order, l.Reason)
		}
		_, err := fmt.Fprintf(w, "%s  %s/%s  %s  %s\n",
			l.Time.Format(time.RFC3339), escaped(l.Pipeline), escaped(l.Route), escaped(l.ID),
			escaped(shortReason(l.Reason)))
		return err
	})
	if err != nil {
		return err
	}
	if f.json {
		return writeResult(w, res)
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(reasons[b], reasons[a]) })
	var b strings.Builder
	if len(order) > 0 {
		b.WriteString("\n")
	}
	for i, reason := range order {
		if i == mostReasons {
			fmt.Fprintf(&b, "and %d other reasons\n", len(order)-i)
			break
		}
		fmt.Fprintf(&b, "%8s  %s\n", thousands(reasons[reason]), escaped(shortReason(reason)))
	}
	fmt.Fprintf(&b, "%s dead letters, %s of them replayed\n", thousands(res.Letters), thousands(res.Replayed))
	b.WriteString(skippedLines(res.Skipped))
	for _, path := range res.Others {
		fmt.Fprintf(&b, "%s has dead letters of a route that the config does not have\n", path)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// otherLetters returns the paths of the dead-letter files that are in the folders of the config's
// routes, but belong to none of these routes. A renamed route leaves such a file.
func otherLetters(c *config.Config) (paths []string, err error) {
	own, folders := make(map[string]bool), make(map[string]bool)
	for p, r := range c.Routes() {
		path, err := filepath.Abs(pipeline.LettersPath(*p, *r)) // two forms may name one folder
		if err != nil {
			return nil, fmt.Errorf("dead letters: %w", err)
		}
		own[path], folders[filepath.Dir(path)] = true, true
	}
	for folder := range folders {
		files, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("dead letters: %w", err)
		}
		for _, file := range files {
			path := filepath.Join(folder, file.Name())
			if filepath.Ext(path) != ".ndjson" || own[path] {
				continue
			}
			if has, err := hasLetters(path); err != nil {
				return nil, fmt.Errorf("dead letters: %w", err)
			} else if has {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// hasLetters reports whether path leads to a file with dead letters. It returns false if the file
// may not be read, or was deleted meanwhile.
func hasLetters(path string) (has bool, err error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return false, nil
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return false, nil
	case err != nil:
		return false, err
	}
	defer f.Close()
	return deadletter.IsLetters(f)
}

// skippedLines returns a note about lines that are not letters, or "" if there are none.
func skippedLines(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s lines of the files are not dead letters and were skipped\n", thousands(n))
}

const (
	mostReasons = 20  // maximum number of reasons in the counts of a list
	reasonWidth = 160 // bytes of a reason in a list
)

func shortReason(s string) string {
	if len(s) <= reasonWidth {
		return s
	}
	return strings.ToValidUTF8(s[:reasonWidth], "") + "..." // JSON, so s was valid
}

func (p *program) deadShow(cmd *cobra.Command, args []string, f *deadFlags) error {
	w := cmd.OutOrStdout()
	shown := map[string]bool{}
	res, err := p.eachLetter(args[0], f, args[1:], func(l letterResult) error {
		shown[l.ID] = true
		if f.json {
			return writeResult(w, l)
		}
		reason := l.Reason
		if l.Detail != "" {
			reason += " (" + l.Detail + ")"
		}
		_, err := fmt.Fprintf(w, "id        %s\nroute     %s/%s\ntime      %s\nreason    %s\nfile      %s, up to %s\n"+
			"worker    %s, attempt %d\nreplayed  %v\nrecord    %s\n\n",
			escaped(l.ID), escaped(l.Pipeline), escaped(l.Route), l.Time.Format(time.RFC3339Nano), escaped(reason),
			escaped(l.File), escaped(l.Position),
			cmp.Or(escaped(l.Worker), "none"), l.Attempts, l.Replayed, escaped(string(l.Text())))
		return err
	})
	for _, id := range args[1:] {
		if err == nil && !shown[id] {
			err = fmt.Errorf("there is no dead letter %s; `penstock dead list --all` prints all "+
				"ids", escaped(id))
		}
	}
	switch {
	case err != nil:
	case f.json:
		err = writeResult(w, res)
	case len(shown) == 0:
		_, err = fmt.Fprintln(w, "no dead letter matches; `penstock dead list --all` prints all "+
			"of them")
	}
	return err
}

// escaped returns s in a form that is safe for terminals. It escapes control characters, invisible
// characters, characters that change the text direction, and bytes that are not UTF-8. It uses the
// escapes of a quoted Go string, so it also doubles each backslash.
func escaped(s string) string {
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
