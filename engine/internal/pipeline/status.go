package pipeline

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Version is this build's version; "devel" for one from a checkout.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Status returns the state of the engine for the admin pages, and whether it is ready.
func (e *Engine) Status() status.Status {
	s := e.picture()
	s.Tree = e.shown(time.Now(), s.Routes)
	return s
}

// picture returns the status without the tree.
func (e *Engine) picture() status.Status {
	pipes := e.pipelines()
	s := status.Status{
		Version: 1, PID: os.Getpid(), Program: Version(), Seconds: e.elapsed().Seconds(), Free: admin.Free(e.cfg.State),
		Routes: []status.Route{}, Sources: make([]status.Source, 0, len(pipes)),
	}
	for _, p := range pipes {
		name := p.cfg.Source.Component.Name
		s.Sources = append(s.Sources, status.Source{
			Pipeline: p.name, Name: name, Counters: p.counter.All(), Held: p.kept(),
		})
		for _, slot := range p.routes() {
			snap := slot.snapshot()
			out := snap.status()
			out.Sink, out.Environment = slot.cfg.Sink.Component.Name, slot.cfg.FromEnvironment()
			out.Opening = slot.opening().Seconds()
			for _, u := range slot.cfg.Processors {
				out.Processors = append(out.Processors, u.Component.Name)
			}
			s.Routes = append(s.Routes, out)
		}
	}
	s.Reload, s.Replay, s.Cluster = e.lastReload(), e.lastReplay(), clusterStatus(e)
	s.Judge()
	return s
}

// kept returns the deleted data that the source keeps, or nil if it is not a stream.Holder.
func (p *pipe) kept() *status.Held {
	holder := p.holder.Load()
	if holder == nil {
		return nil
	}
	h := (*holder).Held()
	return &status.Held{Files: h.Files, Bytes: h.Bytes, Oldest: h.Oldest, Age: h.Age.Seconds(), Route: h.Route}
}

func (s *RouteSnapshot) status() status.Route {
	out := status.Route{
		Pipeline: s.Pipeline, Name: s.Route, Source: s.Source, Processors: []string{}, Health: s.Health, LastFault: s.LastFault,
		Window: s.Window, LeftBytes: s.LeftBytes,
		ReadRecords: s.ReadRecords, ReadBytes: s.ReadBytes, Delivered: s.Delivered, DeliveredBytes: s.DeliveredBytes,
		Dead: s.Dead, Dropped: s.Dropped, InFlight: s.InFlight, Waiting: s.Waiting,
		Parked:   s.Parked,
		Attempts: s.Attempts, Redelivered: s.Redelivered, Duplicates: s.Duplicates,
		RedeliveryTokens: s.Budget.Tokens, RedeliveryWaiting: s.Budget.Waiting, RedeliveryWaited: int64(s.Budget.Waited),
		Hedged: s.Hedged, Suspects: s.Apart.Suspects, Poisoned: s.Apart.Poisoned,
		ReplayBytes: s.ReplayBytes, ReplayBoundBytes: s.ReplayBound,
		QuietSeconds: s.Quiet.Seconds(), WatermarkAgeSeconds: s.WatermarkAge.Seconds(),
		Workers: make([]status.Worker, 0, len(s.Workers)), Counters: s.Counters, SourceCounters: s.SourceCounters,
	}
	if s.Err != nil {
		out.Error = stream.MaskURLs(s.Err.Error())
	}
	out.Starts, out.Again = s.Starts, max(0, s.Again.Seconds())
	for _, w := range s.Workers {
		out.Workers = append(out.Workers, status.Worker{
			Name: w.Name, State: w.State, Reason: stream.MaskURLs(w.Reason), Gate: w.Gate, Window: w.Window, InFlight: w.InFlight,
			RoundTrip: w.RoundTrip.Seconds(), Base: w.Base.Seconds(), Timeout: w.Timeout.Seconds(),
			Delivered: w.Delivered, Failed: w.Failed - w.TimedOut, TimedOut: w.TimedOut, Throttled: w.Throttled, Late: w.Late,
			Misconfigured: w.Misconfigured,
		})
	}
	return out
}

// pages runs the admin pages as a supervised child. The port is opened before anything else, so
// that a bad address is reported at once. After a failure it is opened again.
type pages struct {
	o      admin.Options
	server *admin.Server // the open port; nil if it must be opened
}

// openAdmin opens the port of the admin pages, or returns nil if they are disabled.
func (e *Engine) openAdmin() (*pages, error) {
	a := &e.cfg.Admin
	if !a.On() {
		return nil, nil
	}
	p := &pages{o: admin.Options{
		Address: a.Address, Token: a.Token, Hosts: a.Hosts, Pprof: a.Pprof, Status: e.Status, Live: e.picture, Log: e.o.Log,
		Reload: e.Reload, Dashboard: e.o.Dashboard, LogLevel: e.o.LogLevel, LogTail: &e.tail,
		Tap:     e.Tap,
		Metrics: collectorsOf(e),
		Config:  e.plan,
		Letters: e.Letters, Replay: e.ReplayLetters,
		Deliveries: e.deliveries,
	}}
	if a.DeliveryTokens != "" {
		receivers, err := openReceivers(a.DeliveryTokens)
		if err != nil {
			return nil, err
		}
		p.o.Owner = receivers.of
	}
	var err error
	if p.server, err = admin.Listen(p.o); err != nil {
		return nil, err
	}
	e.o.Log.Info("metrics, health and status are served", "address", p.server.Addr())
	p.o.Address = p.server.Addr() // keep the address after a restart, even if the system chose the port
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

// close may be called twice, and on nil.
func (p *pages) close() error {
	if p == nil || p.server == nil {
		return nil
	}
	s := p.server
	p.server = nil
	return s.Close()
}
