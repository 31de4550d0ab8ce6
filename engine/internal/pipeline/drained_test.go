package pipeline

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/vfs/vfstest"
)

// TestHealthAfterDrain checks the health of a route after a drain. In a finite run it is "stopped"
// if the drain came before the end of the data, otherwise "finished". In any other run it is
// "finished".
func TestHealthAfterDrain(t *testing.T) {
	for _, c := range []struct {
		name          string
		once, endless bool
		sink          stream.Sink
		want          string
	}{
		{"a finite run at its end", true, false, &fakeSink{}, healthFinished},
		{"a finite run, drained", true, true, &fakeSink{}, healthStopped},
		{"a finite run, drained while it opens", true, false, &blockingSink{}, healthStopped},
		{"a run, drained", false, false, &fakeSink{}, healthFinished},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &fakeSource{lines: numbered(3), size: 1, endless: c.endless}
				e := fakeJob(t, vfstest.New(), Options{Once: c.once}, source,
					config.Route{Sink: use(stream.SinkRole, c.sink)})
				ended := make(chan error, 1)
				go func() { ended <- e.Run(t.Context()) }()
				time.Sleep(time.Second)
				e.Drain()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if got := e.Status().Routes[0].Health; got != c.want {
					t.Errorf("health %q, want %q", got, c.want)
				}
			})
		})
	}
}
