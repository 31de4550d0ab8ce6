package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine"
	"github.com/penstock-io/penstock/engine/internal/pipeline"
	"github.com/penstock-io/penstock/stream"
)

// envelopeResult is one envelope (a stored batch) in `buffer list|show --json`.
type envelopeResult struct {
	Pipeline string   `json:"pipeline"`
	Number   uint64   `json:"number"`
	Stored   string   `json:"stored,omitempty"`
	Records  int      `json:"records"`
	Bytes    int      `json:"bytes"`
	Keys     int      `json:"keys"`
	Corrupt  string   `json:"corrupt,omitempty"`
	Skipped  bool     `json:"skipped,omitempty"`
	Texts    []string `json:"texts,omitempty"` // only with show
}

// bufferEnd is the last line of `buffer list --json`: the totals of the envelopes (stored batches).
type bufferEnd struct {
	OK        bool  `json:"ok"`
	Envelopes int64 `json:"envelopes"`
	Corrupt   int64 `json:"corrupt"` // corrupt envelopes, without those that were skipped
}

type bufferFlags struct {
	json, corrupt, intact bool
	pipeline              string
}

func bufferCommand(p *program) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "buffer",
		Short: "Inspect the data of sources with ack: buffered",
		Long: `A source with ack: buffered stores records in envelopes until every route has settled
them. Routes stop at an envelope that is corrupt or missing. These commands show the
envelopes of a config, and skip corrupt ones. They require that no run is in progress.`,
		Example: "  penstock buffer list --corrupt penstock.yaml",
	})
	c := bufferCommands{p}
	cmd.AddCommand(c.listCommand(), c.showCommand(), c.skipCommand())
	return cmd
}

// bufferCommands are the subcommands of buffer.
type bufferCommands struct{ program *program }

func (c bufferCommands) listCommand() *cobra.Command {
	var f bufferFlags
	cmd := &cobra.Command{
		Use:   "list CONFIG",
		Short: "Print the stored envelopes",
		Long: `List reads each stored envelope and prints a line with its number, its time, and the
number of its records or a description of its damage. The exit code is 1 if an envelope
is corrupt and not skipped.`,
		Example: "  penstock buffer list penstock.yaml",
		Args:    needs("a config"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.list(cmd.Context(), cmd.OutOrStdout(), args[0], &f)
		},
	}
	cmd.Flags().BoolVar(&f.corrupt, "corrupt", false, "print only corrupt and missing envelopes")
	f.add(cmd, true)
	return cmd
}

func (c bufferCommands) showCommand() *cobra.Command {
	var f bufferFlags
	cmd := &cobra.Command{
		Use:     "show CONFIG NUMBER",
		Short:   "Print the records of an envelope",
		Long:    `Show prints an envelope and each of its records.`,
		Example: "  penstock buffer show penstock.yaml 17",
		Args:    numbered,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.show(cmd.Context(), cmd.OutOrStdout(), args[0], args[1], &f)
		},
	}
	f.add(cmd, true)
	return cmd
}

func (c bufferCommands) skipCommand() *cobra.Command {
	var f bufferFlags
	cmd := &cobra.Command{
		Use:   "skip CONFIG FROM[-TO]",
		Short: "Skip corrupt envelopes",
		Long: `Skip makes all routes continue after envelopes that are corrupt or missing. Their
records are lost. The decision is stored in the state directory. The next run logs the
skipped envelopes. Each route counts each of them in buffer_skipped. Intact envelopes are
refused unless --intact is given.`,
		Example: `  penstock buffer skip penstock.yaml 17
  penstock buffer skip penstock.yaml 17-19`,
		Args: numbered,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.skip(cmd.Context(), cmd.OutOrStdout(), args[0], args[1], &f)
		},
	}
	cmd.Flags().BoolVar(&f.intact, "intact", false, "also skip intact envelopes")
	f.add(cmd, false)
	return cmd
}

func (f *bufferFlags) add(cmd *cobra.Command, json bool) {
	if json {
		cmd.Flags().BoolVar(&f.json, "json", false, "print JSON, one object a line")
	}
	cmd.Flags().StringVar(&f.pipeline, "pipeline", "", "one pipeline, if several have a buffer")
}

// numbered checks the number of arguments. There must be two: a config, and the number of an
// envelope (a stored batch) or a range of such numbers.
func numbered(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usagef("%sneeds a config and an envelope's number: %s", named(cmd), cmd.UseLine())
	}
	return nil
}

// parseEnvelopes parses a number or a range such as 17-19.
func parseEnvelopes(text string) (first, last uint64, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err = strconv.ParseUint(from, 10, 38)
	last, lastErr := strconv.ParseUint(to, 10, 38)
	if err != nil || lastErr != nil || first == 0 || last < first {
		const form = "buffer: %q is not an envelope; write a number such as 17, or a range such " +
			"as 17-19"
		return 0, 0, usagef(form, text)
	}
	return first, last, nil
}

// openBuffer is the buffer of a pipeline.
type openBuffer struct {
	pipeline string
	stream.OpenBuffer
}

// with calls the function use with the buffers of a config. It holds the lock of the state
// directory during the call. It omits pipelines without a buffer, or with one that was not created
// yet.
func (c bufferCommands) with(
	ctx context.Context, config string, f *bufferFlags, use func([]openBuffer) error,
) error {
	loaded, err := engine.Load(config, c.program.components...)
	if err != nil {
		return err
	}
	dir, state, err := c.program.openState(config)
	if err != nil {
		return err
	}
	return withLock(dir, state, "buffer", func() (err error) {
		var open []openBuffer
		defer func() {
			for _, b := range open {
				err = errors.Join(err, b.Close())
			}
		}()
		buffered := false
		for _, pipe := range loaded.Pipelines {
			o, ok := pipe.Source.Options.(stream.BufferingOptions)
			if !ok || f.pipeline != "" && f.pipeline != pipe.Name {
				continue
			}
			of := filepath.Join(state, filepath.FromSlash(pipeline.SourceDir(pipe.Name)))
			b, err := o.OpenBuffer(ctx, of)
			if errors.Is(err, stream.ErrNoBuffer) {
				continue
			}
			if buffered = true; errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			open = append(open, openBuffer{pipe.Name, b})
		}
		switch {
		case !buffered && f.pipeline != "":
			return usagef("buffer: no pipeline %q of %s has a source with ack: buffered", f.pipeline,
				config)
		case !buffered:
			return usagef("buffer: no source of %s has ack: buffered", config)
		}
		return use(open)
	})
}

func (c bufferCommands) list(
	ctx context.Context, w io.Writer, config string, f *bufferFlags,
) error {
	end := bufferEnd{OK: true}
	err := c.with(ctx, config, f, func(open []openBuffer) error {
		for _, b := range open {
			if err := end.list(ctx, w, b, f); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	end.OK = end.Corrupt == 0
	if f.json {
		err = writeResult(w, end)
	} else {
		_, err = fmt.Fprintf(w, "%s, %s corrupt\n", count(end.Envelopes, "envelope"),
			thousands(end.Corrupt))
	}
	if err == nil && !end.OK {
		err = errors.New("envelopes are corrupt; restore the state from a backup, or skip them " +
			"with `penstock buffer skip`")
	}
	return err
}

// list prints the envelopes of a buffer and counts them.
func (end *bufferEnd) list(ctx context.Context, w io.Writer, b openBuffer, f *bufferFlags) error {
	first, last, err := b.Bounds(ctx)
	if err != nil || last == 0 {
		return err
	}
	for n := max(first, 1); n <= last; n++ {
		e, err := b.Envelope(ctx, n)
		if err != nil {
			return err
		}
		end.Envelopes++
		if e.Corrupt != "" && !e.Skipped {
			end.Corrupt++
		}
		if f.corrupt && e.Corrupt == "" {
			continue
		}
		if err := writeEnvelope(w, b.pipeline, &e, f.json, false); err != nil {
			return err
		}
	}
	return nil
}

func (c bufferCommands) show(
	ctx context.Context, w io.Writer, config, number string, f *bufferFlags,
) error {
	first, last, err := parseEnvelopes(number)
	if err != nil {
		return err
	}
	if first != last {
		return usagef("buffer show: %q is a range; show prints one envelope", number)
	}
	return c.one(ctx, config, f, "show", func(b openBuffer) error {
		e, err := b.Envelope(ctx, first)
		if err != nil {
			return err
		}
		if e.Corrupt != "" && e.Bytes == 0 {
			low, high, err := b.Bounds(ctx)
			if err == nil && (first < low || first > high) {
				err = fmt.Errorf("there is no envelope %d; %s", first, bounds(low, high))
			}
			if err != nil {
				return err
			}
		}
		return writeEnvelope(w, b.pipeline, &e, f.json, true)
	})
}

// bounds describes the range of the numbers of the stored envelopes.
func bounds(first, last uint64) string {
	if last == 0 {
		return "nothing is stored"
	}
	return fmt.Sprintf("stored are %d to %d", first, last)
}

// one calls the function take with one buffer of a config. If the flag --pipeline is set, this is
// the buffer of that pipeline. Otherwise the config must have only one buffer.
func (c bufferCommands) one(
	ctx context.Context, config string, f *bufferFlags, command string,
	take func(openBuffer) error,
) error {
	return c.with(ctx, config, f, func(open []openBuffer) error {
		switch len(open) {
		case 0:
			return fmt.Errorf("buffer %s: nothing has been stored yet", command)
		case 1:
			return take(open[0])
		}
		var names []string
		for _, b := range open {
			names = append(names, b.pipeline)
		}
		return usagef("buffer %s: several pipelines have a buffer: %s; select one with --pipeline",
			command, strings.Join(names, ", "))
	})
}

func (c bufferCommands) skip(
	ctx context.Context, w io.Writer, config, numbers string, f *bufferFlags,
) error {
	first, last, err := parseEnvelopes(numbers)
	if err != nil {
		return err
	}
	return c.one(ctx, config, f, "skip", func(b openBuffer) error {
		low, high, err := b.Bounds(ctx)
		if err != nil {
			return err
		}
		if last > high { // the store may have lost envelopes below low
			return fmt.Errorf("envelopes %d to %d are not in the buffer; %s",
				first, last, bounds(low, high))
		}
		for n := first; n <= last && !f.intact; n++ {
			e, err := b.Envelope(ctx, n)
			if err == nil && e.Corrupt == "" {
				err = fmt.Errorf("envelope %d is intact, and its %d records would be lost; give "+
					"only corrupt ones, or add --intact", n, len(e.Records))
			}
			if err != nil {
				return err
			}
		}
		if err := b.Skip(ctx, first, last); err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s: the next run skips %s\n", b.pipeline,
			count(int64(last-first+1), "envelope"))
		return err
	})
}

// writeEnvelope prints an envelope as a summary line or, if whole is set, completely.
func writeEnvelope(w io.Writer, name string, e *stream.Envelope, json, whole bool) error {
	r := envelopeResult{
		Pipeline: name, Number: e.Number, Records: len(e.Records), Bytes: e.Bytes, Keys: e.Keys,
		Corrupt: e.Corrupt, Skipped: e.Skipped,
	}
	if !e.Stored.IsZero() {
		r.Stored = e.Stored.UTC().Format(time.RFC3339)
	}
	if json {
		for i := 0; whole && i < len(e.Records); i++ {
			r.Texts = append(r.Texts, string(e.Records[i]))
		}
		return writeResult(w, r)
	}
	text := fmt.Sprintf("%s, %s bytes", count(int64(r.Records), "record"),
		thousands(int64(r.Bytes)))
	if r.Records == 0 {
		text = fmt.Sprintf("copies of %s keys", thousands(int64(r.Keys)))
	}
	if r.Corrupt != "" {
		text = "corrupt: " + r.Corrupt
	}
	if r.Skipped {
		text += " (skipped)"
	}
	if r.Stored != "" {
		text = r.Stored + "  " + text
	}
	_, err := fmt.Fprintf(w, "%s  %d  %s\n", name, r.Number, text)
	for i := 0; err == nil && whole && i < len(e.Records); i++ {
		_, err = fmt.Fprintf(w, "  %s\n", escaped(string(e.Records[i])))
	}
	return err
}
