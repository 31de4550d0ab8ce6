package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/checkpoint"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/engine/internal/waiting"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs"
)

func (p *program) checkpointVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify CONFIG|STATE",
		Short: "Read a checkpoint to its end and report damage",
		Long: `Verify checks every entry's checksum and prints the content of the file. It only
reads, and may run beside penstock. The exit code is 1 if anything is damaged. The next
start resumes from the entries before the damage, and keeps a copy of the file.`,
		Example: "  penstock checkpoint verify ./state",
		Args:    needs("a config or a state directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.verifyCheckpoint(cmd.OutOrStdout(), args[0])
		},
	}
}

func (p *program) verifyCheckpoint(w io.Writer, path string) error {
	_, report, err := p.readCheckpoint(path)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, report); err != nil {
		return err
	}
	if report.Damage != "" {
		return fmt.Errorf("%s is damaged", report.File)
	}
	return nil
}

// change is a change of progress by `checkpoint reset` or `checkpoint set`.
type change struct {
	route string
	parts []string // ids or names; empty means all partitions of the route
	to    int64    // for set: the position up to which everything is to count as delivered
	set   bool
	found bool // with set: accept the existing output

	files   vfs.FS
	letters string // path of the route's dead letters
}

func (p *program) checkpointReset() *cobra.Command {
	var c change
	cmd := &cobra.Command{
		Use:   "reset CONFIG|STATE PIPELINE/ROUTE [--partition ID|NAME]...",
		Short: "Delete a route's progress, so that it starts from the beginning",
		Long: `Reset deletes the progress of a route, or only that of the partitions given by id or
name. Their data is delivered again. Without --partition, the resume tokens of the
route's workers are deleted, too. Stop the running penstock first. A copy of the
checkpoint is kept beside it. Reset does not change the ledger of a SQL sink, so the
sink still stores no record twice. If the ledger was lost, reset accepts that
everything is delivered again.`,
		Example: "  penstock checkpoint reset ./state access/main --partition /var/log/app.log",
		Args:    resetArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				c.route = args[1]
			}
			if c.route == "" {
				return usagef("checkpoint reset needs a route, as PIPELINE/ROUTE")
			}
			return p.changeCheckpoint(cmd.OutOrStdout(), args[0], c)
		},
	}
	c.flags(cmd)
	return cmd
}

// resetArgs accepts a config or state directory and, unless --route is given, a route.
func resetArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 2 {
		return usagef("checkpoint reset takes a config or a state directory, and a route; remove %q",
			args[2])
	}
	if len(args) < 2 {
		return needs("a config or a state directory")(cmd, args)
	}
	if cmd.Flags().Changed("route") {
		return usagef("checkpoint reset: the route is given twice, as %q and as --route", args[1])
	}
	return nil
}

func (p *program) checkpointSet() *cobra.Command {
	var c change
	cmd := &cobra.Command{
		Use:   "set CONFIG|STATE --route PIPELINE/ROUTE [--partition ID|NAME --watermark N] [--accept-output]",
		Short: "Set a route's position in a partition",
		Long: `Set moves the watermark of partitions: everything before it counts as delivered,
everything after it is delivered again. For files it is an offset in bytes, and must be
the beginning of a record.

With --accept-output, the next start accepts the output of a sink file in its current
state, even if it is missing, replaced or shorter. It keeps the content and appends to it.

Stop the running penstock first. A copy of the checkpoint is kept.`,
		Example: "  penstock checkpoint set ./state --route access/main " +
			"--partition /var/log/app.log --watermark 1048576",
		Args: needs("a config or a state directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			moves := len(c.parts) > 0 || cmd.Flags().Changed("watermark")
			if !moves && !c.found || moves && (len(c.parts) == 0 || !cmd.Flags().Changed("watermark") || c.to < 0) {
				return usagef("checkpoint set needs --partition, and --watermark of 0 or more, " +
					"or --accept-output")
			}
			if c.route == "" {
				return usagef("checkpoint set needs --route PIPELINE/ROUTE")
			}
			c.set = moves
			return p.changeCheckpoint(cmd.OutOrStdout(), args[0], c)
		},
	}
	c.flags(cmd)
	cmd.Flags().Int64Var(&c.to, "watermark", 0,
		"position before which everything counts as delivered")
	cmd.Flags().BoolVar(&c.found, "accept-output", false,
		"sink file: accept the output in its current state")
	return cmd
}

func (c *change) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.route, "route", "",
		"the route, as PIPELINE/ROUTE; a single route without a name is called main")
	cmd.Flags().StringArrayVar(&c.parts, "partition", nil, "id or name, as checkpoint show "+
		"--json prints it; may be repeated")
}

// changeCheckpoint applies c to the checkpoint. It holds the lock of the state directory meanwhile.
func (p *program) changeCheckpoint(w io.Writer, path string, c change) error {
	var err error
	c.files = p.files
	if c.letters, err = lettersPath(p, path, c.route); err != nil {
		return err
	}
	return withLockedState(p, path, func(dir vfs.Dir) error {
		return withCheckpoint(dir, func(store *checkpoint.Store) error {
			return c.apply(w, dir, store)
		})
	})
}

// withLockedState locks the state directory at path, and calls the function use with it. The
// directory must have a checkpoint.
func withLockedState(p *program, path string, use func(vfs.Dir) error) error {
	dir, state, err := p.openState(path)
	if err != nil {
		return err
	}
	return withLock(dir, state, "checkpoint", func() error {
		if _, err := dir.Stat(checkpoint.Name); err != nil {
			return fmt.Errorf("state directory %s has no checkpoint: %w", state, err)
		}
		return use(dir)
	})
}

// withLock calls the function use while a command holds the lock of the state directory dir, whose
// path is state. At the end it closes dir.
func withLock(dir vfs.Dir, state, command string, use func() error) (err error) {
	defer func() { err = errors.Join(err, dir.Close()) }()
	text := fmt.Sprintf("penstock %s, process %d", command, os.Getpid())
	lock, err := dir.Lock(pipeline.LockName, text)
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("state directory %s: %w; stop the run first", state, err)
	}
	if err != nil {
		return fmt.Errorf("state directory %s: %w", state, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return use()
}

// withNewState calls the function use with the checkpoint while the command holds the lock of the
// state directory, whose path is state. It creates the directory and the checkpoint if they do not
// exist.
func withNewState(
	files vfs.FS, state, command string, use func(*checkpoint.Store) error,
) error {
	dir, err := files.MakeDir(state, 0o700)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", state, err)
	}
	return withLock(dir, state, command, func() error { return withCheckpoint(dir, use) })
}

// withCheckpoint calls the function use with the checkpoint in a locked state directory. If the
// checkpoint is damaged, it returns an error and changes nothing, because only the log of a run
// would report the damage.
func withCheckpoint(dir vfs.Dir, use func(*checkpoint.Store) error) (err error) {
	_, report, err := checkpoint.Read(dir)
	if err == nil {
		err = report.Err()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	store, _, err := checkpoint.Open(dir, checkpoint.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return use(store)
}

// apply changes the progress of the route. A checkpoint may have two layers for a route: one that
// survives a power loss, and one that is valid until the next boot. apply changes both.
func (c *change) apply(w io.Writer, dir vfs.Dir, store *checkpoint.Store) error {
	found, err := c.find(store, dir)
	if err != nil {
		return err
	}
	copied, err := store.Backup()
	if err != nil {
		return err
	}
	err = store.Change(func() error {
		for key, marks := range found.marks {
			if err := c.applyTo(store, key, marks); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the change may or may not have been made, which penstock checkpoint show "+
			"tells; the previous checkpoint is kept as %s: %w", copied, err)
	}
	var waited int64
	if c.set || !c.found { // after the marks: a crash between the two loses nothing
		if waited, err = c.dropWaiting(dir, found.marks); err != nil {
			return fmt.Errorf("the progress was changed, but the batches that wait for a retry were "+
				"not removed, so the next run delivers them: state directory %s: %w", dir.Path(), err)
		}
	}
	total, letters := len(found.parts), len(found.letters)
	if c.found && !c.set {
		total, letters = 0, 0
	}
	var b strings.Builder
	if letters > 0 {
		fmt.Fprintf(&b, "%s: %d dead letters count as not replayed\n", c.route, letters)
	}
	if waited > 0 {
		fmt.Fprintf(&b, "%s: removed %d records that were waiting for a retry\n", c.route, waited)
	}
	if c.found {
		fmt.Fprintf(&b, "%s: the next start accepts the output in its current state\n", c.route)
	}
	fmt.Fprintf(&b, "%s: changed the progress of %s; the previous checkpoint is kept as %s\n",
		c.route, count(int64(total), "partition"), copied)
	_, err = io.WriteString(w, b.String())
	return err
}

// selection is the progress that a change selects.
type selection struct {
	marks   map[string][]stream.Mark // new progress, by the keys of the route in the checkpoint
	parts   map[string]bool          // ids of the other partitions
	letters map[string]bool          // partition ids of dead letters that count as not replayed
}

// add selects a partition. The parameter to is its new watermark, unless the change deletes the
// progress.
func (s *selection) add(key string, part stream.Partition, to int64) {
	// Metadata verifies the bytes before the old watermark, so the new progress has none.
	mark := stream.Mark{Part: part, Watermark: stream.Position{Num: to}}
	s.marks[key] = append(s.marks[key], mark)
	if deadletter.IsPartition(part.ID) && to < 1 {
		s.letters[part.ID] = true
	} else {
		s.parts[part.ID] = true
	}
}

// find returns the progress that the change selects. If the command line gives no ids or names of
// partitions, this is all progress of the route. Otherwise it is the progress of these partitions,
// and of the dead letters given by id. A replayed letter is stored in the checkpoint like a
// partition. Replayed letters whose records are delivered again are selected, too.
func (c *change) find(store *checkpoint.Store, state vfs.Dir) (selection, error) {
	s := selection{marks: make(map[string][]stream.Mark), parts: make(map[string]bool),
		letters: make(map[string]bool)}
	again := newRepeated(c)
	var known []string
	unmatched := slices.Clone(c.parts)
	for _, key := range store.Routes() {
		route, _ := layer(key)
		if !slices.Contains(known, route) {
			known = append(known, route)
		}
		if route != c.route {
			continue
		}
		s.marks[key] = nil
		for m := range store.Marks(key) {
			isLetter := deadletter.IsPartition(m.Part.ID)
			is := func(part string) bool {
				return part == m.Part.ID || part == m.Part.Name && !isLetter
			}
			if len(c.parts) > 0 && !slices.ContainsFunc(c.parts, is) {
				continue
			}
			if c.set && c.to > 0 && m.Watermark.Key != "" {
				return s, usagef("checkpoint set: the positions of partition %q of %s are not "+
					"numbers; use --watermark 0 to read it from its beginning", m.Part.Name, c.route)
			}
			unmatched = slices.DeleteFunc(unmatched, is)
			s.add(key, m.Part, c.to)
			if !isLetter && c.repeats(m) {
				again.add(m.Part)
			}
		}
	}
	switch {
	case len(s.marks) == 0 && c.isWaitingLeft(state):
		return s, nil
	case len(s.marks) == 0:
		return s, fmt.Errorf("the checkpoint has no route %q; it has %q", c.route, known)
	case len(unmatched) > 0:
		return s, fmt.Errorf("route %s has no partition %q; penstock checkpoint show --json lists "+
			"ids and names", c.route, unmatched)
	}
	if len(c.parts) > 0 { // otherwise all letters are selected
		return s, c.addLetters(&s, store, again)
	}
	return s, nil
}

// isWaitingLeft reports whether the change resets a whole route of which batches wait for a retry,
// or the store of these batches is damaged. A crash during an earlier reset may have left them,
// although the route has no progress any more.
func (c *change) isWaitingLeft(state vfs.Dir) bool {
	if c.set || c.found || len(c.parts) > 0 {
		return false
	}
	name, route, _ := strings.Cut(c.route, "/")
	dir, err := state.OpenDir(pipeline.WaitingDir(name, route))
	if err != nil {
		return false
	}
	defer dir.Close()
	store, err := waiting.Open(dir, waiting.Options{})
	if err != nil {
		return true
	}
	defer store.Close()
	ranges, _, _ := store.Held()
	return ranges > 0
}

// repeats reports whether the change makes a route read records of a partition again that it has
// settled (delivered, dead-lettered or dropped). m is the progress of the partition before the
// change.
func (c *change) repeats(m stream.Mark) bool {
	to := stream.Position{Num: c.to}
	above := func(r stream.Range) bool { return to.Compare(r.To) < 0 }
	return !c.set || to.Compare(m.Watermark) < 0 || slices.ContainsFunc(m.Above, above)
}

// dropWaiting deletes the batches of the changed partitions that wait for a retry. It returns the
// number of records in these batches. If the whole route is reset, dropWaiting also deletes a
// damaged store of waiting batches, and returns 0.
func (c *change) dropWaiting(state vfs.Dir, found map[string][]stream.Mark) (records int64, err error) {
	name, route, _ := strings.Cut(c.route, "/")
	dir, err := state.OpenDir(pipeline.WaitingDir(name, route))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	store, err := waiting.Open(dir, waiting.Options{})
	if err != nil && len(c.parts) == 0 && !c.set {
		return 0, waiting.Remove(dir) // the store is damaged, and nothing in it is needed
	} else if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var ids []string
	if len(c.parts) > 0 || c.set {
		for _, marks := range found {
			for _, m := range marks {
				ids = append(ids, m.Part.ID)
			}
		}
		if len(ids) == 0 {
			return 0, nil
		}
	}
	records = store.Drop(ids...)
	_, err = store.Sync()
	return records, err
}

func (c *change) applyTo(store *checkpoint.Store, key string, marks []stream.Mark) error {
	if c.found {
		if err := deleteTokens(store, key); err != nil || !c.set {
			return err
		}
	}
	if c.set {
		return store.Append(key, marks, nil)
	}
	var ids []string
	for _, m := range marks {
		ids = append(ids, m.Part.ID)
	}
	if err := store.Forget(key, ids); err != nil || len(c.parts) > 0 {
		return err
	}
	return deleteTokens(store, key)
}

// deleteTokens deletes the resume tokens of the route's sink.
func deleteTokens(store *checkpoint.Store, key string) error {
	places := store.Places(key)
	for lane := range places {
		places[lane] = "" // deletes the place
	}
	return store.Append(key, nil, places)
}
