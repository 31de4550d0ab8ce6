package pipeline

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/penstock-io/penstock/engine/internal/admin"
	"github.com/penstock-io/penstock/engine/kit/diskspace"
	"github.com/penstock-io/penstock/engine/status"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/supervise"
)

// Version returns the version of this build, or "devel" if the build has none.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Status returns the state of the engine for the admin pages.
func (e *Engine) Status() status.Status {
	s := e.statusWithoutTree()
	s.Tree = e.treeStatus(time.Now(), s.Routes)
	return s
}

// statusWithoutTree returns the status without the tree.
func (e *Engine) statusWithoutTree() status.Status {
	pipes := e.pipelines()
	s := status.Status{
		Version: 1, PID: os.Getpid(), Program: Version(), Seconds: e.elapsed().Seconds(),
		Free:   diskspace.Free(e.cfg.State),
		Routes: []status.Route{}, Sources: make([]status.Source, 0, len(pipes)),
	}
	for _, p := range pipes {
		name := p.cfg.Source.Component.Name
		s.Sources = append(s.Sources, status.Source{
			Pipeline: p.name, Name: name, Counters: p.counter.All(), Held: p.heldFiles(),
			Error: p.sourceFailure(),
		})
		for _, slot := range p.routes() {
			s.Routes = append(s.Routes, slot.snapshot())
		}
	}
	s.Reload, s.Replay, s.Cluster = e.lastReload(), e.lastReplay(), clusterStatus(e)
	s.Judge()
	return s
}

// sourceFailure returns the reason why the source gets no data now, or "".
func (p *pipe) sourceFailure() string {
	retrying, ok := (*p.observed.Load()).(stream.RetryingSource)
	if !ok {
		return ""
	}
	err := retrying.Failure()
	if err == nil {
		return ""
	}
	return stream.MaskURLs(err.Error())
}

// heldFiles describes the deleted files that the source keeps open. It returns nil if the source
// does not implement stream.Holder.
func (p *pipe) heldFiles() *status.Held {
	holder, ok := (*p.observed.Load()).(stream.Holder)
	if !ok {
		return nil
	}
	h := holder.Held()
	return &status.Held{Files: h.Files, Bytes: h.Bytes, Oldest: h.Oldest, Age: h.Age.Seconds(), Route: h.Route}
}

// pages runs the admin pages as a supervised child. The port is opened before the pipelines start,
// so that a wrong address is reported immediately. After a failure the port is opened again.
type pages struct {
	o      admin.Options
	server *admin.Server // the server with its open port; nil if the port must be opened
}

// openAdmin opens the port of the admin pages, or returns nil if they are disabled.
func (e *Engine) openAdmin() (*pages, error) {
	a := &e.cfg.Admin
	if !a.On() {
		return nil, nil
	}
	p := &pages{o: admin.Options{
		Address: a.Address, Token: a.Token, Hosts: a.Hosts, Pprof: a.Pprof, Status: e.Status,
		Live: e.statusWithoutTree, Log: e.o.Log,
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
	p.o.Address = p.server.Addr() // keep the address, even if the system chose it
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

// close closes the port. It may be called twice, and on nil.
func (p *pages) close() error {
	if p == nil || p.server == nil {
		return nil
	}
	s := p.server
	p.server = nil
	return s.Close()
}
