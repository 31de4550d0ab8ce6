package pipeline

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-io/penstock/engine/config"
)

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startApplied(t, 100, "p/a=1", "p/b=1")
		if err := a.e.Reload(t.Context()); !errors.Is(err, errNoLoader) {
			t.Errorf("Reload without a loader = %v", err)
		}
		if r := a.e.Status().Reload; r == nil || r.OK || r.Count != 1 || r.Failed != 1 {
			t.Errorf("status: %+v", r)
		}
		var loads error
		words := []string{"p/a=1", "p/b=2"}
		a.e.o.Load = func() (*config.Config, error) { return a.config(words...), loads }
		loads = errors.New("penstock.yaml:3:1: no such key")
		if err := a.e.Reload(t.Context()); !errors.Is(err, loads) {
			t.Errorf("Reload of an invalid config = %v", err)
		}
		if r := a.e.Status().Reload; r.OK || r.Count != 2 || r.Failed != 2 || r.Error != loads.Error() {
			t.Errorf("status: %+v", r)
		}
		loads = nil
		if err := a.e.Reload(t.Context()); err != nil {
			t.Errorf("Reload = %v", err)
		}
		if r := a.e.Status().Reload; !r.OK || r.Count != 3 || r.Failed != 2 || r.Error != "" {
			t.Errorf("status: %+v", r)
		}
		words = []string{"p/a=1", "p/b=refused"}
		if err := a.e.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "no such version") {
			t.Errorf("Reload that a constructor refuses = %v", err)
		}
		if starts := a.route("p", "a").Starts; starts != 1 {
			t.Errorf("the unchanged route started %d times", starts)
		}
		a.e.Drain()
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		if err := a.e.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "not running") {
			t.Errorf("Reload after the end = %v", err)
		}
	})
}
