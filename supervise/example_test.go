package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/penstock-io/penstock/backoff"
	"github.com/penstock-io/penstock/supervise"
)

// A child that fails twice is restarted; when it is done, the tree ends.
func ExampleSupervisor() {
	starts := 0
	tree, err := supervise.New("shop", supervise.Spec{Backoff: backoff.Fixed(time.Millisecond)},
		supervise.Child{Name: "cache", Run: func(ctx context.Context) error {
			<-ctx.Done()
			fmt.Println("cache stops:", context.Cause(ctx))
			return nil
		}},
		supervise.Child{Name: "import", Restart: supervise.Transient, Significant: true,
			Run: func(context.Context) error {
				if starts++; starts < 3 {
					return errors.New("the other side hung up")
				}
				fmt.Println("imported at start", starts)
				return nil
			}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ended with", tree.Serve(context.Background()))
	// Output:
	// imported at start 3
	// cache stops: supervise: stopped
	// ended with <nil>
}

// A supervisor can be a child of another one. The status draws the tree.
func ExampleSupervisor_Status() {
	idle := func(ctx context.Context) error { <-ctx.Done(); return nil }
	up := make(chan struct{})
	orders, err := supervise.New("orders", supervise.Spec{Strategy: supervise.RestForOne},
		supervise.Child{Name: "database", Run: idle},
		supervise.Child{Name: "clerk", Run: func(ctx context.Context) error {
			close(up)
			return idle(ctx)
		}},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := supervise.New("shop", supervise.Spec{},
		supervise.Child{Name: "log", Run: idle},
		supervise.Child{Service: orders}, // its name is orders.String()
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	group := supervise.NewGroup(ctx)
	group.Go("tree", tree.Serve)
	<-up
	fmt.Print(tree.Status())
	cancel()
	if err := group.Wait(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shop (one for one): running
	// ├── log: running
	// └── orders (rest for one): running
	//     ├── database: running
	//     └── clerk: running
}

// The caller gets its reply although the child crashes twice on the message.
func ExampleResender() {
	asked := 0
	sender, err := supervise.NewResender("sender", supervise.Options[string, int, int]{
		Child: supervise.Each("oracle", func(_ context.Context, key string, n int) (int, error) {
			if asked++; asked < 3 {
				panic("not now")
			}
			return n * 6, nil
		}),
		Backoff: backoff.Fixed(time.Millisecond),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close()
	group := supervise.NewGroup(context.Background())
	group.Go("sender", sender.Serve)
	answer, err := sender.Call(context.Background(), "question", 7)
	fmt.Println(answer, err, "after", asked, "attempts")
	group.Stop(nil)
	if err := group.Wait(); err != nil {
		fmt.Println(err)
	}
	// Output: 42 <nil> after 3 attempts
}

// A message that crashes its child three times is dead-lettered; the others get their replies.
func ExampleLimits() {
	sender, err := supervise.NewResender("sender", supervise.Options[string, int, int]{
		Child: supervise.Each("divide", func(_ context.Context, _ string, n int) (int, error) {
			return 100 / n, nil
		}),
		Backoff: backoff.Fixed(time.Millisecond),
		Limits:  supervise.Limits{MaxDeaths: 3},
		DeadLetter: func(_ context.Context, d supervise.Dead[string, int]) error {
			fmt.Println("dead letter:", d.Key, "after", d.Deaths, "deaths")
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sender.Close()
	group := supervise.NewGroup(context.Background())
	group.Go("sender", sender.Serve)
	if err := sender.Send(context.Background(), "poison", 0); err != nil {
		fmt.Println(err)
	}
	fmt.Println(sender.Call(context.Background(), "good", 25))
	group.Stop(nil)
	if err := group.Wait(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// dead letter: poison after 3 deaths
	// 4 <nil>
}

// The first failure ends the other goroutines; Wait returns it with the name.
func ExampleGroup() {
	group := supervise.NewGroup(context.Background())
	group.Go("reader", func(ctx context.Context) error {
		<-ctx.Done()
		fmt.Println("reader ends:", context.Cause(ctx))
		return nil
	})
	group.Go("writer", func(context.Context) error { return errors.New("disk full") })
	fmt.Println(group.Wait())
	// Output:
	// reader ends: writer: disk full
	// writer: disk full
}

// After more than two restarts in a minute the supervisor gives up.
func ExampleIntensity() {
	tree, err := supervise.New("shop", supervise.Spec{
		Backoff:   backoff.Fixed(time.Millisecond),
		Intensity: supervise.Intensity{Max: 2, Within: time.Minute},
	}, supervise.Child{Name: "clerk", Run: func(context.Context) error {
		return errors.New("no pencil")
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = tree.Serve(context.Background())
	if escalated, ok := errors.AsType[*supervise.EscalatedError](err); ok {
		fmt.Println("gave up", escalated.Child, "after", len(escalated.Errs), "ends, the last of:",
			escalated.Errs[2])
	}
	// Output: gave up clerk after 3 ends, the last of: clerk: no pencil
}

// At most two of the five requests run at a time.
func ExampleGroup_SetLimit() {
	group := supervise.NewGroup(context.Background())
	group.SetLimit(2)
	var served atomic.Int32
	for i := range 5 {
		group.Go(fmt.Sprint("request ", i), func(context.Context) error {
			served.Add(1)
			return nil
		})
	}
	fmt.Println(group.Wait(), served.Load())
	// Output: <nil> 5
}

// Events are logged with the context of Serve, so a handler can add trace ids.
func ExampleLogTo() {
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "ran" {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	tree, err := supervise.New("shop", supervise.Spec{OnEvent: supervise.LogTo(log)},
		supervise.Child{
			Name: "import", Restart: supervise.Temporary, Significant: true,
			Run: func(context.Context) error { return errors.New("no such file") },
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tree.Serve(context.Background()))
	// Output:
	// level=INFO msg="child started" supervisor=shop child=import incarnation=1
	// level=WARN msg="child failed" supervisor=shop child=import incarnation=1 restart=false err="no such file"
	// import: no such file
}
