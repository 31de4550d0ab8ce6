package command

import (
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-io/penstock/engine/internal/lab/csma"
	"github.com/penstock-io/penstock/engine/internal/lab/plot"
	"github.com/penstock-io/penstock/engine/internal/table"
)

type csmaFlags struct {
	stations, frameBits []int
	bitRate             float64
	slot                time.Duration
	attempts, frames    int
	seed                uint64
	byRetry             bool
	output
}

// csmaResult is a line of the output of `sim csma --json`, for one number of stations and one frame
// length. The names of its fields are stable.
type csmaResult struct {
	Stations  int     `json:"stations"`
	FrameBits int     `json:"frame_bits"`
	Formula   float64 `json:"formula"` // Metcalfe and Boggs
	// Ideal is the utilisation in a simulation of the model of Metcalfe and Boggs, in which each of
	// Q stations sends with probability 1/Q.
	Ideal     float64 `json:"ideal"`
	BEB       float64 `json:"beb"`        // utilisation with the real backoff
	LostShare float64 `json:"lost_share"` // share of frames that were given up
	// WinsInARow is the share of frames with the same sender as the frame before. It measures the
	// capture effect: a station that has sent is more likely to send again.
	WinsInARow float64 `json:"wins_in_a_row"`
	Longest    int     `json:"longest_in_row"` // most frames in a row by one station
}

func newCSMACommand() *cobra.Command {
	var f csmaFlags
	cmd := &cobra.Command{
		Use:   "csma [--stations N,N] [--frame-bits N,N]",
		Short: "Simulate an Ethernet: CSMA/CD with binary exponential backoff",
		Long: `Sim csma fills an Ethernet with stations that always have a frame to send, and
prints the share of the time in which the medium carries frames:

    formula   the formula of Metcalfe and Boggs (1976)
    ideal     their model, simulated: in each slot every station sends with
              probability 1/Q
    beb       Ethernet itself: carrier sense, collision, jam, interframe gap, and the
              truncated binary exponential backoff of 802.3
    lost      frames that 802.3 gives up after 16 collisions
    in a row  frames from the sender of the frame before (capture effect): the winner's
              backoff starts over, while the losers wait longer

802.3 gives up at the 16th collision, after 15 waits. Some texts count 16 retries;
--attempts 17 simulates those.`,
		Example: `  penstock sim csma --stations 2,10,64 --frame-bits 512,12144
  penstock sim csma --bit-rate 3e6 --slot 16us --frame-bits 4096,1024,512,48 --json
  penstock sim csma --by-retry --stations 2,5,10,32,100`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.byRetry {
				return f.runByRetry(cmd.OutOrStdout())
			}
			return f.run(cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntSliceVar(&f.stations, "stations", []int{2, 5, 10, 32, 64, 256},
		"numbers of stations, one run each")
	cmd.Flags().IntSliceVar(&f.frameBits, "frame-bits", []int{512, 4096, 12144}, "bits of a frame")
	cmd.Flags().Float64Var(&f.bitRate, "bit-rate", 10e6, "bits a second")
	cmd.Flags().DurationVar(&f.slot, "slot", 0, "slot time (default: 512 bit times)")
	cmd.Flags().IntVar(&f.attempts, "attempts", 16, "transmissions of a frame before it is lost")
	cmd.Flags().IntVar(&f.frames, "frames", 20000, "number of frames in each run")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "the same seed gives the same figures")
	f.addFlags(cmd.Flags(), "print a line of JSON for each number of stations and bits")
	cmd.Flags().BoolVar(&f.byRetry, "by-retry", false,
		"print the chance that the nth retry collides again, instead of a simulation")
	return cmd
}

// maxFrames is the maximum number of frames of a run.
const maxFrames = 10_000_000

func (f csmaFlags) run(out io.Writer) error {
	if f.frames < 1 || f.frames > maxFrames {
		return usagef("sim csma --frames: %d is not 1 to %d", f.frames, maxFrames)
	}
	if f.attempts < 1 || f.slot < 0 {
		return usagef("sim csma: --attempts is %d and --slot %v; want 1 or more, and 0 or more",
			f.attempts, f.slot)
	}
	var networks []csma.Network
	for _, q := range f.stations {
		for _, bits := range f.frameBits {
			n, err := csma.Network{Stations: q, FrameBits: bits, BitRate: f.bitRate, Slot: f.slot,
				Attempts: f.attempts}.Check()
			if err != nil {
				return usagef("sim csma: %v", err)
			}
			networks = append(networks, n)
		}
	}
	var results []csmaResult
	rows := [][]string{{"stations", "frame bits", "formula", "ideal", "beb", "lost", "in a row",
		"longest"}}
	for _, n := range networks {
		run := csma.Run(n, f.frames, f.seed)
		r := csmaResult{
			Stations: n.Stations, FrameBits: n.FrameBits, Formula: csma.Formula(n),
			Ideal: csma.Ideal(n, f.frames, f.seed),
			BEB:   run.Utilisation, LostShare: run.LostShare(), WinsInARow: run.WinsInARow(),
			Longest: run.Longest,
		}
		results = append(results, r)
		if err := f.line(out, r); err != nil {
			return err
		}
		rows = append(rows, []string{
			strconv.Itoa(r.Stations), strconv.Itoa(r.FrameBits), share(r.Formula), share(r.Ideal),
			share(r.BEB),
			share(r.LostShare), share(r.WinsInARow), strconv.Itoa(r.Longest),
		})
	}
	return f.finish(out, table.Text(rows, 0), func() plot.Figure { return f.figure(results) })
}

func share(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }

// figure draws two panels against the number of stations: the utilisation (the share of the time in
// which the cable carries frames), and the share of frames with the same sender as the frame before
// (the capture effect). Dashed lines show the formula and the share of lost frames.
func (f csmaFlags) figure(results []csmaResult) plot.Figure {
	stations := plot.Axis{Label: "stations", Log: true}
	use := plot.Panel{Title: "Share of the time that carries frames", X: stations,
		Y: plot.Axis{Label: "utilisation"}}
	rest := plot.Panel{Title: "Whose frames", X: stations,
		Y: plot.Axis{Label: "share of the frames"}}
	for i, bits := range f.frameBits {
		var x, formula, beb, row, lost []float64
		for j := i; j < len(results); j += len(f.frameBits) {
			r := results[j]
			x, formula, beb = append(x, float64(r.Stations)), append(formula, r.Formula),
				append(beb, r.BEB)
			row, lost = append(row, r.WinsInARow), append(lost, r.LostShare)
		}
		name := strconv.Itoa(bits) + " bits"
		use.Series = append(use.Series,
			plot.Series{Name: name, Color: i, X: x, Y: beb},
			plot.Series{Color: i, X: x, Y: formula, Dashed: true})
		rest.Series = append(rest.Series,
			plot.Series{Name: name, Color: i, X: x, Y: row},
			plot.Series{Color: i, X: x, Y: lost, Dashed: true})
	}
	use.Series = append(use.Series, plot.Series{Name: "formula", Color: 6, Dashed: true})
	rest.Series = append(rest.Series, plot.Series{Name: "lost", Color: 6, Dashed: true})
	return plot.Figure{
		Title: "Ethernet in saturation",
		Subtitle: "the real backoff, as penstock sim csma prints it; " +
			"the left panel's lines are beb, the right one's wins in a row",
		Panels: []plot.Panel{use, rest},
	}
}
