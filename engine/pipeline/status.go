package pipeline

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/penstock-io/penstock/engine/internal/admin"
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
		Routes: make([]admin.Route, 0, len(snap.Routes)), Sources: make([]admin.Source, 0, len(snap.Sources)),
	}
	for _, src := range snap.Sources {
		s.Sources = append(s.Sources, admin.Source{Pipeline: src.Pipeline, Name: src.Source, Counters: src.Counters})
	}
	at := 0
	for _, p := range e.pipes {
		for _, slot := range p.slots {
			out := snap.Routes[at].status()
			at++
			out.Sink = slot.cfg.Sink.Component.Name
			for _, u := range slot.cfg.Processors {
				out.Processors = append(out.Processors, u.Component.Name)
			}
			s.Routes = append(s.Routes, out)
		}
	}
	s.Tree = e.shown(time.Now(), s.Routes)
	s.Judge()
	return s
}

func (r *RouteSnapshot) status() admin.Route {
	out := admin.Route{
		Pipeline: r.Pipeline, Name: r.Route, Source: r.Source, Processors: []string{}, Health: r.Health, LastFault: r.LastFault,
		Window:      r.Window,
		ReadRecords: r.ReadRecords, ReadBytes: r.ReadBytes, Delivered: r.Delivered, DeliveredBytes: r.DeliveredBytes,
		Dead: r.Dead, Dropped: r.Dropped, InFlight: r.InFlight, Waiting: r.Waiting,
		Attempts: r.Attempts, Redelivered: r.Redelivered, Duplicates: r.Duplicates,
		RedeliveryTokens: r.Budget.Tokens, RedeliveryWaiting: r.Budget.Waiting, RedeliveryWaited: int64(r.Budget.Waited),
		Hedged: r.Hedged, Suspects: r.Suspects, Poisoned: r.Poisoned,
		ReplayBytes: r.ReplayBytes, ReplayBoundBytes: r.ReplayBound,
		QuietSeconds: r.Quiet.Seconds(), WatermarkAgeSeconds: r.WatermarkAge.Seconds(),
		Workers: make([]admin.Worker, 0, len(r.Workers)), Counters: r.Counters, SourceCounters: r.SourceCounters,
	}
	if r.Err != nil {
		out.Error = r.Err.Error()
	}
	out.Starts, out.Again = r.Starts, max(0, r.Again.Seconds())
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

// pages are the admin pages as a supervised child. Their port is opened before anything else, so that a wrong one is said at
// once; where they have failed it is opened again.
type pages struct {
	o      admin.Options
	server *admin.Server // the port that is open; nil: open it
}

// openAdmin opens the port of the admin pages, if there are to be any; else nil.
func (e *Engine) openAdmin() (*pages, error) {
	a := e.cfg.Admin
	if e.o.Admin != nil {
		a = *e.o.Admin
	}
	if !a.On() {
		return nil, nil
	}
	p := &pages{o: admin.Options{
		Address: a.Address, Token: a.Token, Hosts: a.Hosts, Pprof: a.Pprof, Status: e.Status, Log: e.o.Log,
	}}
	var err error
	if p.server, err = admin.Listen(p.o); err != nil {
		return nil, err
	}
	e.o.Log.Info("metrics, health and status are served", "address", p.server.Addr())
	p.o.Address = p.server.Addr() // the same one again, also where the config lets the system choose
	return p, nil
}

func (p *pages) child() supervise.Child {
	return supervise.Child{Name: "admin", Run: func(ctx context.Context) (err error) {
		if p.server == nil {
			if p.server, err = admin.Listen(p.o); err != nil {
				return err
			}
		}
		defer func() { err = joined(err, p.close()) }()
		return p.server.Run(ctx)
	}}
}

// close may be called twice, and of nil.
func (p *pages) close() error {
	if p == nil || p.server == nil {
		return nil
	}
	s := p.server
	p.server = nil
	return s.Close()
}
