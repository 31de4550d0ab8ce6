package supervise_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/supervise"
)

// TestZeroValues checks that the zero values panic with the name of the constructor.
func TestZeroValues(t *testing.T) {
	ctx := t.Context()
	none := func(context.Context) error { return nil }
	for _, c := range []struct {
		call func()
		want string
	}{
		{func() { _ = new(supervise.Supervisor).Serve(ctx) }, "supervise.New"},
		{func() { _ = new(supervise.Supervisor).Add(supervise.Child{}) }, "supervise.New"},
		{func() { _ = new(supervise.Supervisor).Remove(ctx, "a") }, "supervise.New"},
		{func() { _ = new(supervise.Supervisor).Restart("a") }, "supervise.New"},
		{func() { new(supervise.Supervisor).Status() }, "supervise.New"},
		{func() { new(supervise.Group).Context() }, "supervise.NewGroup"},
		{func() { new(supervise.Group).SetLimit(1) }, "supervise.NewGroup"},
		{func() { new(supervise.Group).Go("a", none) }, "supervise.NewGroup"},
		{func() { new(supervise.Group).TryGo("a", none) }, "supervise.NewGroup"},
		{func() { new(supervise.Group).Stop(nil) }, "supervise.NewGroup"},
		{func() { _ = new(supervise.Group).Wait() }, "supervise.NewGroup"},
		{func() { new(supervise.Group).Status() }, "supervise.NewGroup"},
		{func() { _ = new(supervise.Resender[int, int, int]).Send(ctx, 1, 1) }, "NewResender"},
		{func() { _, _ = new(supervise.Resender[int, int, int]).Call(ctx, 1, 1) }, "NewResender"},
		{func() { _ = new(supervise.Resender[int, int, int]).Serve(ctx) }, "NewResender"},
		{func() { _, _ = new(supervise.Inbox[int, int, int]).Next(ctx) }, "Work"},
		{func() { supervise.Message[int, int, int]{}.Ack(1) }, "Inbox.Next"},
		{func() { supervise.Message[int, int, int]{}.Nack(nil) }, "Inbox.Next"},
	} {
		got := fmt.Sprint(panicOf(c.call))
		if !strings.HasPrefix(got, "supervise: zero ") || !strings.Contains(got, c.want) {
			t.Errorf("panic %q, want one with %s", got, c.want)
		}
	}
}
