package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/table"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

// markResult is the progress of one partition in `checkpoint show --json`.
type markResult struct {
	Route     string        `json:"route"`
	Boot      string        `json:"boot,omitempty"` // see the function layer
	Partition string        `json:"partition"`      // id
	Name      string        `json:"name"`
	Watermark position      `json:"watermark"` // everything up to here is settled
	Above     []rangeResult `json:"above"`     // settled ranges above it
	Finished  bool          `json:"finished"`
}

type position struct {
	Num int64  `json:"num"`
	Key string `json:"key,omitempty"` // order-preserving encoding of a key, quoted as in Go
}

type rangeResult struct {
	From position `json:"from"`
	To   position `json:"to"`
}

// placeResult is one object of `checkpoint show --json`. It describes a worker that writes in
// order. The field Place has the resume token of this worker.
type placeResult struct {
	Route string `json:"route"`
	Boot  string `json:"boot,omitempty"`
	Lane  string `json:"lane"`
	Place string `json:"place"`
}

// shownResult is the last line of `checkpoint show --json`.
type shownResult struct {
	OK         bool     `json:"ok"`
	File       string   `json:"file"`
	Version    uint16   `json:"version"`
	Routes     int      `json:"routes"`
	Partitions int      `json:"partitions"`
	Damage     string   `json:"damage,omitempty"`
	Aside      []string `json:"aside,omitempty"` // copies of damaged files in the state directory
}

func (p *program) checkpointCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "checkpoint",
		Short: "Show, verify or change the progress of each route",
		Long: `A checkpoint is the durable progress of each route in each partition (a file, a
table). It is stored in the state directory. A start resumes from it.`,
		Example: "  penstock checkpoint show penstock.yaml",
	})
	var asJSON bool
	show := &cobra.Command{
		Use:   "show CONFIG|STATE",
		Short: "Print the checkpoint of a config or of a state directory",
		Long: `Show prints for each route and partition the watermark (everything up to it is
settled), the number of settled ranges above it, and whether the source has finished
it. For each ordered worker it prints the position up to which the receiver has
accepted the data. "survives" is the worst event that an entry survives: a kill, or,
after the sink has synced, a power loss. Show only reads, and may run beside penstock.

With --json it prints one object per partition or position, then one with "ok".`,
		Example: `  penstock checkpoint show penstock.yaml
  penstock checkpoint show --json ./state`,
		Args: needs("a config or a state directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.showCheckpoint(cmd.OutOrStdout(), args[0], asJSON)
		},
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	cmd.AddCommand(show, p.checkpointVerify(), p.checkpointReset(), p.checkpointSet())
	cmd.AddCommand(checkpointConvert(p))
	return cmd
}

// stateOf returns the state directory for the argument of a command, which is a state directory or
// a config.
func (p *program) stateOf(path string) (string, error) {
	if isState(path) {
		return path, nil
	}
	f, err := engine.Load(path, p.components...)
	if err != nil {
		return "", err
	}
	return f.State, nil
}

// isState reports whether path is a state directory. A directory with YAML files and without a
// checkpoint is a config.
func isState(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	files, err := config.Files(path)
	_, none := os.Stat(filepath.Join(path, checkpoint.Name))
	return err != nil || len(files) == 0 || none == nil
}

// openState opens the state directory for the argument of a command, which is a state directory or
// a config.
func (p *program) openState(path string) (dir vfs.Dir, state string, err error) {
	if state, err = p.stateOf(path); err != nil {
		return nil, "", err
	}
	dir, err = p.files.OpenDir(state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("state directory %s does not exist: nothing has been "+
			"delivered with this config yet", state)
	}
	if err != nil {
		return nil, "", fmt.Errorf("state directory %s: %w", state, err)
	}
	return dir, state, nil
}

func (p *program) readCheckpoint(path string) (snap *checkpoint.Snapshot, report *checkpoint.Report, err error) {
	dir, state, err := p.openState(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	snap, report, err = checkpoint.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("state directory %s has no checkpoint: no route has saved "+
			"progress in it yet", state)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("state directory %s: %w", state, err)
	}
	return snap, report, nil
}

func (p *program) showCheckpoint(w io.Writer, path string, asJSON bool) error {
	snap, report, err := p.readCheckpoint(path)
	if err != nil {
		return err
	}
	if asJSON {
		err = checkpointJSON(w, snap, report)
	} else {
		_, err = io.WriteString(w, checkpointText(snap, report))
	}
	if err == nil && report.Damage != "" {
		err = fmt.Errorf(
			"%s is damaged: %s; data settled after the damaged entry will be delivered "+
				"again", report.File, report.Damage)
	}
	return err
}

func checkpointJSON(w io.Writer, snap *checkpoint.Snapshot, report *checkpoint.Report) error {
	last := shownResult{
		OK: report.Damage == "", File: report.File, Version: snap.Version, Routes: report.Routes,
		Damage: report.Damage, Aside: report.Aside,
	}
	for _, r := range snap.Routes {
		route, boot := layer(r.Route)
		for _, m := range r.Marks {
			last.Partitions++
			out := markResult{
				Route: route, Boot: boot, Partition: m.Part.ID, Name: m.Part.Name, Watermark: positionOf(m.Watermark),
				Above: []rangeResult{}, Finished: m.Finished,
			}
			for _, a := range m.Above {
				out.Above = append(out.Above, rangeResult{positionOf(a.From), positionOf(a.To)})
			}
			if err := writeResult(w, out); err != nil {
				return err
			}
		}
		for _, lane := range slices.Sorted(maps.Keys(r.Places)) {
			if err := writeResult(w, placeResult{route, boot, lane, r.Places[lane]}); err != nil {
				return err
			}
		}
	}
	return writeResult(w, last)
}

func checkpointText(snap *checkpoint.Snapshot, report *checkpoint.Report) string {
	rows := [][]string{{"route", "partition", "survives", "watermark", "ranges above", "finished"}}
	places := [][]string{{"route", "worker", "survives", "place"}}
	for _, r := range snap.Routes {
		route, boot := layer(r.Route)
		survives := "power loss"
		if boot != "" {
			survives = "kill"
		}
		for _, m := range r.Marks {
			finished := "no"
			if m.Finished {
				finished = "yes"
			}
			rows = append(rows, []string{
				route, printable(m.Part.Name), survives, positionText(m.Watermark),
				strconv.Itoa(len(m.Above)), finished,
			})
		}
		for _, lane := range slices.Sorted(maps.Keys(r.Places)) {
			places = append(places, []string{route, printable(lane), survives, printable(r.Places[lane])})
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", report)
	if len(rows) > 1 {
		b.WriteString("\n" + table.Text(rows, 3))
	}
	if len(places) > 1 {
		b.WriteString("\n" + table.Text(places, 4))
	}
	return b.String()
}

// layer splits a key of the checkpoint into the name of a route and a boot id. If the boot id is
// not empty, the progress under this key is valid only until the next boot, because the sink has
// perhaps not synced the data. See docs/adr/0004-two-layers-of-checkpoint.md.
func layer(kept string) (route, boot string) {
	route, boot, _ = strings.Cut(kept, checkpoint.BootMark)
	return route, boot
}

func positionOf(p stream.Position) position {
	out := position{Num: p.Num}
	if p.Key != "" {
		out.Key = strings.Trim(strconv.Quote(p.Key), `"`)
	}
	return out
}

func positionText(p stream.Position) string {
	if p.Key == "" {
		return thousands(p.Num)
	}
	return fmt.Sprintf("%s %q", thousands(p.Num), p.Key)
}

// printable returns s, or a quoted Go string if s has characters that are not printable. Otherwise
// text from a source or receiver could control the terminal.
func printable(s string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if strings.ContainsFunc(s, hidden) {
		return strconv.Quote(s)
	}
	return s
}
