package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/live"
	"github.com/penstock-io/penstock/engine/internal/top"
	"github.com/penstock-io/penstock/retry"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// topRetry is the wait between attempts to connect.
const topRetry = time.Second

func topCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "top CONFIG|ADDRESS",
		Short: "Watch the routes and workers of a running process",
		Long: `Top shows the routes and workers of a running process, once a second: rates, backlog,
and for each worker its state, the gate that limits it, its window and its round trip.
Workers with problems come first. Enter explains the gate.

Keys: j k or arrows select, s and S change the order, r reverses it, / filters by route,
worker, state or gate, enter shows details, ? shows the keys, q quits.

It needs a terminal; ` + "`penstock status`" + ` prints the figures once.`,
		Example: `  penstock top penstock.yaml
  PENSTOCK_ADMIN_TOKEN=... penstock top 127.0.0.1:7070`,
		Args: needs("a config or an address"),
		RunE: func(cmd *cobra.Command, args []string) error { return runTop(p, cmd, args[0]) },
	}
}

func runTop(p *program, cmd *cobra.Command, of string) error {
	address, token, err := p.adminOf(of)
	if err != nil {
		return err
	}
	out := terminalFile(cmd.OutOrStdout())
	in, isFile := cmd.InOrStdin().(*os.File)
	if out == nil || !isFile || !term.IsTerminal(int(in.Fd())) {
		return usagef("top: standard input and output must be a terminal; `penstock status` prints the figures once")
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	first, stop := context.WithTimeout(ctx, 5*time.Second)
	_, err = admin.Ask(first, address, token) // fail early if the address or token is wrong
	stop()
	if err != nil {
		return err
	}
	screen := tea.NewProgram(&topModel{}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out))
	group := supervise.NewGroup(ctx)
	group.Go("frames", func(ctx context.Context) error {
		for ctx.Err() == nil {
			err := admin.Frames(ctx, address, token, func(f *live.Frame) error {
				screen.Send(f)
				return ctx.Err()
			})
			if err == nil {
				err = errors.New("the process has ended")
			}
			screen.Send(topTrouble(stream.MaskURLs(err.Error())))
			if retry.Sleep(ctx, topRetry) != nil {
				break
			}
		}
		return nil
	})
	_, err = screen.Run()
	cancel()
	group.Stop(nil)
	_ = group.Wait() // it returns no error
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) && cmd.Context().Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	return nil
}

// topTrouble is a Bubble Tea message to topModel: the process cannot be reached, so that there is
// nothing new to display. Its text is the reason.
type topTrouble string

// topModel displays a top.State on a terminal.
type topModel struct{ state top.State }

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.state.Width, m.state.Height = msg.Width, msg.Height
	case *live.Frame:
		m.state.Frame(msg)
	case topTrouble:
		m.state.Disconnected(string(msg))
	case tea.KeyPressMsg:
		if m.state.Key(msg.String()) {
			return m, tea.Quit
		}
	}
	return m, nil
}

// View implements tea.Model.
func (m *topModel) View() tea.View {
	v := tea.NewView(m.state.Render())
	v.AltScreen = true
	v.WindowTitle = "penstock top"
	return v
}
