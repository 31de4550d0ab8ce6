package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/supervise"
)

// crashing are programs that a panic must crash. TestPassPanics runs each in a process of its own.
var crashing = map[string]func(event func(context.Context, supervise.Event)) error{
	"child": func(event func(context.Context, supervise.Event)) error {
		sup, err := supervise.New("root", supervise.Spec{PassPanics: true, OnEvent: event},
			supervise.Child{Name: "a", Run: jams})
		if err != nil {
			return err
		}
		return sup.Serve(context.Background())
	},
	"nested": func(event func(context.Context, supervise.Event)) error {
		sub, err := supervise.New("sub", supervise.Spec{}, supervise.Child{Name: "a", Run: jams})
		if err != nil {
			return err
		}
		sup, err := supervise.New("root", supervise.Spec{PassPanics: true, OnEvent: event},
			supervise.Child{Service: sub})
		if err != nil {
			return err
		}
		return sup.Serve(context.Background())
	},
	"group": func(event func(context.Context, supervise.Event)) error {
		sup, err := supervise.New("root", supervise.Spec{PassPanics: true, OnEvent: event},
			supervise.Child{Name: "a", Run: func(ctx context.Context) error {
				g := supervise.NewGroup(ctx)
				g.Go("g", jams)
				<-make(chan struct{}) // only the crash ends it
				return g.Wait()
			}})
		if err != nil {
			return err
		}
		return sup.Serve(context.Background())
	},
}

func jams(context.Context) error { panic("out of paper") }

const crashVariable = "SUPERVISE_TEST_CRASH"

// TestPassPanics checks that a panic with PassPanics ends the process with the stack of its origin,
// after OnEvent has got the child's event.
func TestPassPanics(t *testing.T) {
	if program := crashing[os.Getenv(crashVariable)]; program != nil {
		err := program(func(_ context.Context, e supervise.Event) {
			fmt.Fprintf(os.Stderr, "event: %s/%s %v\n", e.Supervisor, e.Child, e.Kind)
		})
		fmt.Fprintln(os.Stderr, "survived:", err)
		return
	}
	events := map[string]string{
		// A group has no events.
		"child": "event: root/a ended", "nested": "event: root/sub/a ended", "group": "",
	}
	for name := range crashing {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPassPanics$")
			cmd.Env = append(os.Environ(), crashVariable+"="+name)
			out, err := cmd.CombinedOutput()
			text := string(out)
			if _, crashed := errors.AsType[*exec.ExitError](err); !crashed ||
				strings.Contains(text, "survived") {
				t.Fatalf("the process ended with %v:\n%s", err, text)
			}
			told, panicked := strings.Index(text, events[name]),
				strings.Index(text, "panic: out of paper")
			if told < 0 || panicked < told || !strings.Contains(text, "supervise_test.jams") {
				t.Errorf("want the event, then the panic with its stack:\n%s", text)
			}
		})
	}
}

// TestPassPanicsPassesNothingElse checks that with PassPanics, a child that ends without a panic of
// its own is restarted as without PassPanics, for example after an error or runtime.Goexit.
func TestPassPanicsPassesNothingElse(t *testing.T) {
	for name, end := range map[string]func() error{
		"error":  func() error { return errCrash },
		"goexit": func() error { runtime.Goexit(); return nil },
		"foreign panic error": func() error {
			return &supervise.PanicError{Name: "other", Value: "somewhere else"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				_, stop := serve(t, supervise.Spec{PassPanics: true, Backoff: fixed(s)},
					supervise.Child{Name: "a",
						Run: func(ctx context.Context) error {
							if starts++; starts < 3 {
								return end()
							}
							<-ctx.Done()
							return nil
						}})
				pass(5 * s)
				if starts != 3 {
					t.Errorf("%d starts, want 3", starts)
				}
				stop()
			})
		})
	}
}
