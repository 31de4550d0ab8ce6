package pipeline

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/supervise"
)

// Version is this build's version; "devel" for one from a checkout.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Status is a picture of the engine for the admin pages, with the judgement whether it is ready.
func (e *Engine) Status() admin.Status {
	snap := e.Snapshot()
	s := admin.Status{
		Version: 1, PID: os.Getpid(), Program: Version(), Seconds: snap.Elapsed.Seconds(), Free: admin.Free(e.cfg.State),
		Routes: make([]admin.Route, 0, len(snap.Routes)),
	}
	at := 0
	for _, p := range e.pipes {
		for _, r := range p.routes {
			out := snap.Routes[at].status()
			at++
			out.Source, out.Sink = p.cfg.Source.Component.Name, r.cfg.Sink.Component.Name
			for _, u := range r.cfg.Processors {
				out.Processors = append(out.Processors, u.Component.Name)
			}
			s.Routes = append(s.Routes, out)
		}
	}
	s.Judge()
	return s
}

func (r *RouteSnapshot) status() admin.Route {
	out := admin.Route{
		Pipeline: r.Pipeline, Name: r.Route, Processors: []string{}, Health: r.Health, LastFault: r.LastFault,
		ReadRecords: r.ReadRecords, ReadBytes: r.ReadBytes, Delivered: r.Delivered, DeliveredBytes: r.DeliveredBytes,
		Dead: r.Dead, Dropped: r.Dropped, InFlight: r.InFlight, Waiting: r.Waiting,
		Attempts: r.Attempts, Redelivered: r.Redelivered, Duplicates: r.Duplicates,
		RedeliveryTokens: r.Budget.Tokens, RedeliveryWaiting: r.Budget.Waiting, RedeliveryWaited: int64(r.Budget.Waited),
		ReplayBytes: r.ReplayBytes, ReplayBoundBytes: r.ReplayBound,
		QuietSeconds: r.Quiet.Seconds(), WatermarkAgeSeconds: r.WatermarkAge.Seconds(),
		Workers: make([]admin.Worker, 0, len(r.Workers)), Counters: r.Counters,
	}
	if r.Err != nil {
		out.Error = r.Err.Error()
	}
	for _, w := range r.Workers {
		out.Workers = append(out.Workers, admin.Worker{
			Name: w.Name, State: w.State, Reason: w.Reason, Gate: w.Gate, Window: w.Window, InFlight: w.InFlight,
			RoundTrip: w.RoundTrip.Seconds(), Base: w.Base.Seconds(), Timeout: w.Timeout.Seconds(),
			Delivered: w.Delivered, Failed: w.Failed - w.TimedOut, TimedOut: w.TimedOut, Throttled: w.Throttled, Late: w.Late,
			Misconfigured: w.Misconfigured,
		})
	}
	return out
}

// serveAdmin opens the admin pages, if there are to be any. stop ends them; it may be called once.
func (e *Engine) serveAdmin(ctx context.Context, a config.Admin) (stop func() error, err error) {
	if !a.On() {
		return func() error { return nil }, nil
	}
	server, err := admin.Listen(admin.Options{
		Address: a.Address, Token: a.Token, Hosts: a.Hosts, Pprof: a.Pprof, Status: e.Status, Log: e.o.Log,
	})
	if err != nil {
		return nil, err
	}
	e.o.Log.Info("metrics, health and status are served", "address", server.Addr())
	group := supervise.NewGroup(context.WithoutCancel(ctx)) // it shows the end, too
	group.Go("admin", server.Run)
	return func() error {
		group.Stop(nil)
		return joined(group.Wait(), server.Close())
	}, nil
}
