package flow

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/flow/control"
)

func TestPanickingWorker(t *testing.T) {
	for name, fail := range map[string]func(){
		"panic":       func() { panic("out of paper") },
		"panic error": func() { panic(errRefused) },
		"Goexit":      runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newLog[int](t)
				w := WorkerFunc[int](func(_ context.Context, a Attempt[int]) (Report, error) {
					if a.Number == 1 {
						fail()
					}
					return Report{}, nil
				})
				mustRun(t, d.options(d.lane("a", w)), these(values(1, 2)...))
				d.wantSettled(1, 2)
				if len(d.failures) != 2 {
					t.Fatalf("failures %v, want 2", d.failures)
				}
				f := d.failures[0]
				p, ok := errors.AsType[*PanicError](f.Err)
				if !ok || f.Outcome != control.Retryable ||
					!strings.Contains(string(p.Stack), "TestPanickingWorker") {
					t.Errorf("failure is %v %v", f.Outcome, f.Err)
				}
				if name == "panic error" && !errors.Is(f.Err, errRefused) {
					t.Errorf("%v does not wrap what was panicked with", f.Err)
				}
				if !strings.HasPrefix(f.Err.Error(), `worker "a": `) {
					t.Errorf("error is %q", f.Err)
				}
			})
		})
	}
}

func TestPanicOfProducerAndDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLog[int](t)
		p := ProducerFunc[int](func(context.Context) (Item[int], error) { panic("no rows") })
		err := mustSender(t, d.options(d.lane("a", takes[int](0)))).Run(t.Context(), p)
		if p, ok := errors.AsType[*PanicError](err); !ok || p.Where != "producer" ||
			p.Value != "no rows" {
			t.Errorf("Run: %v", err)
		}
		o := newLog[int](t).options(Lane[int]{Name: "a", Worker: rejects[int](func(int) bool {
			return true
		})})
		o.DeadLetter = func(context.Context, Item[int], error) error {
			runtime.Goexit()
			return nil
		}
		err = mustSender(t, o).Run(t.Context(), these(values(1)...))
		if p, ok := errors.AsType[*PanicError](err); !ok || p.Where != "Options.DeadLetter" ||
			p.Value != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestPanicOfCallback checks that a panic in a callback makes Run panic, and that Run leaves no
// goroutine behind. A goroutine left behind would keep the bubble from ending.
func TestPanicOfCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newLog[int](t).options(Lane[int]{Name: "a", Worker: takes[int](0)},
			Lane[int]{Name: "b", Worker: hangs[int]()})
		o.Settled = func(Item[int], Settlement) { panic("callback") }
		defer func() {
			p, ok := recover().(*PanicError)
			if !ok || p.Value != "callback" ||
				!strings.Contains(string(p.Stack), "TestPanicOfCallback") {
				t.Errorf("recovered %v", p)
			}
		}()
		_ = mustSender(t, o).Run(t.Context(), these(values(1, 2, 3, 4, 5, 6)...))
		t.Error("Run returned")
	})
}
