package supervise_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/supervise"
)

func TestFinal(t *testing.T) {
	cause := errors.New("the input cannot be read again")
	if err := supervise.Final(nil); err != nil {
		t.Errorf("Final(nil) = %v", err)
	}
	err := supervise.Final(cause)
	if err.Error() != cause.Error() {
		t.Errorf("Final(%q) = %q; want the same text", cause, err)
	}
	if !errors.Is(err, cause) || !errors.Is(err, supervise.ErrStop) {
		t.Errorf("Final(%q) does not wrap both its cause and ErrStop", cause)
	}
}

// TestPanicNames checks that the error of Serve names the child of a panic once, and also the
// goroutine within the child.
func TestPanicNames(t *testing.T) {
	crash := func(context.Context) error { panic("boom") }
	group := func(ctx context.Context) error {
		g := supervise.NewGroup(ctx)
		g.Go("worker", crash)
		return g.Wait()
	}
	once := supervise.Spec{Intensity: supervise.Intensity{Max: 1, Within: s}}
	for _, v := range []struct {
		spec  supervise.Spec
		child supervise.Child
		want  string
	}{
		{child: supervise.Child{Run: crash, Restart: supervise.Temporary}, want: "c: panic: boom"},
		{child: supervise.Child{Run: group, Restart: supervise.Temporary},
			want: "c: worker: panic: boom"},
		{once, supervise.Child{Run: group}, `supervisor "root" gave up at child "c": ` +
			"more than 1 restarts within 1s: c: worker: panic: boom"},
	} {
		synctest.Test(t, func(t *testing.T) {
			v.child.Name, v.child.Significant = "c", true
			sup, err := supervise.New("root", v.spec, v.child)
			if err != nil {
				t.Fatal(err)
			}
			line, _, _ := strings.Cut(sup.Serve(t.Context()).Error(), "\n")
			if line != v.want {
				t.Errorf("Serve returned %q, want %q", line, v.want)
			}
		})
	}
}
