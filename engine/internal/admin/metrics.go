package admin

import (
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/penstock-io/penstock/engine/internal/explain"
	"github.com/penstock-io/penstock/engine/status"
)

// collector turns the status of the engine into metrics each time they are scraped. Data of records
// never gets into labels: names of pipelines, routes and workers come from the config (or, for
// workers, from discovery), and states and names of counters come from the code.
type collector struct {
	status func() status.Status
}

var (
	perRoute  = []string{"pipeline", "route"}
	perWorker = []string{"pipeline", "route", "worker"}
)

// metric is a value of a metric, whose name is "penstock_" and family. It is a counter if family
// ends in "_total", else a gauge.
type metric struct {
	family, help string
	value        float64
}

// metricList has the descriptions of the metrics of one kind of object.
type metricList[T any] struct {
	of    func(*T) []metric
	descs []*prometheus.Desc
}

func listOf[T any](of func(*T) []metric, labels ...string) metricList[T] {
	list := metricList[T]{of: of}
	for _, m := range of(new(T)) {
		list.descs = append(list.descs,
			prometheus.NewDesc("penstock_"+m.family, m.help, labels, nil))
	}
	return list
}

// collect sends the metrics of an object.
func (l metricList[T]) collect(to chan<- prometheus.Metric, object *T, labels ...string) {
	for i, m := range l.of(object) {
		kind := prometheus.GaugeValue
		if strings.HasSuffix(m.family, "_total") {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(l.descs[i], kind, m.value, labels...)
	}
}

var (
	heldMetrics   = listOf(heldValues, "pipeline", "source")
	routeMetrics  = listOf(routeValues, perRoute...)
	leaseMetrics  = listOf(leaseValues, "pipeline")
	workerMetrics = listOf(workerValues, perWorker...)
)

func heldValues(h *status.Held) []metric {
	return []metric{
		{"source_held_files", "Deleted files kept until all routes have read them.",
			float64(h.Files)},
		{"source_held_bytes", "Disk space of deleted files kept until all routes have read them.",
			float64(h.Bytes)},
		{"source_held_seconds", "Time since the oldest of the kept deleted files was deleted.",
			h.Age},
	}
}

func routeValues(r *status.Route) []metric {
	return []metric{
		{"read_records_total", "Source records read; always the sum of delivered, parked, dead, " +
			"dropped, in flight and waiting.", float64(r.ReadRecords)},
		{"read_bytes_total", "Source bytes read.", float64(r.ReadBytes)},
		{"delivered_records_total", "Source records that the sink has taken.",
			float64(r.Delivered)},
		{"delivered_bytes_total", "Source bytes that the sink has taken.",
			float64(r.DeliveredBytes)},
		{"dead_records_total", "Source records that became dead letters.", float64(r.Dead)},
		{"dropped_records_total", "Source records that a processor dropped.", float64(r.Dropped)},
		{"in_flight_records", "Source records in in-flight batches.", float64(r.InFlight)},
		{"waiting_records", "Source records that were read, and are neither settled, parked nor " +
			"in flight.", float64(r.Waiting)},
		{"parked_records", "Source records in the sink's store of parked deliveries.",
			float64(r.Parked)},
		{"route_starts_total", "Starts of the route; more than one means that it failed and was " +
			"restarted.", float64(r.Starts)},
		{"attempts_total", "Attempts to deliver a batch.", float64(r.Attempts)},
		{"redeliveries_total", "Attempts that were not a batch's first.", float64(r.Redelivered)},
		{"duplicates_total", "Responses that delivered a batch a second time.",
			float64(r.Duplicates)},
		{"redelivery_tokens", "Redeliveries that the budget allows now; -1 without a budget.",
			r.RedeliveryTokens},
		{"redelivery_waiting_batches", "Batches that wait for the redelivery budget.",
			float64(r.RedeliveryWaiting)},
		{"redelivery_waits_total", "Redeliveries that had to wait for the budget.",
			float64(r.RedeliveryWaited)},
		{"hedges_total", "Second attempts that ran beside a slow one (flow.hedge).",
			float64(r.Hedged)},
		{"suspect_batches", "Suspect batches: workers that accept other batches fail them.",
			float64(r.Suspects)},
		{"poisoned_batches_total", "Batches bisected because workers died of them, or failed " +
			"them repeatedly.", float64(r.Poisoned)},
		{"replay_bytes", "Source bytes that a kill now would repeat at most.",
			float64(r.ReplayBytes)},
		{"replay_bound_bytes", "Source bytes that a kill at any moment would repeat at most.",
			float64(r.ReplayBoundBytes)},
		{"quiet_seconds", "Time since the last settled record while data waits; else 0.",
			r.QuietSeconds},
		{"watermark_age_seconds", "Longest time for which a watermark with unsettled data above " +
			"it has not moved; else 0.", r.WatermarkAgeSeconds},
	}
}

func leaseValues(l *status.Lease) []metric {
	return []metric{
		{"lease_owned", "1 if this process runs the shared pipeline.", oneIf(l.Owned)},
		{"lease_epoch", "Epoch of the owner; each takeover has a higher one.", float64(l.Epoch)},
		{"lease_takeovers_total", "Times that this process has become the owner.",
			float64(l.Takeovers)},
		{"lease_starved_total", "Timers of the lease that were more than 2 s late: no CPU time, " +
			"or suspended.", float64(l.Starved)},
		{"lease_silent_seconds", "Time since the last response of the cluster's bucket; -1 if " +
			"there was none.", l.Silent},
	}
}

func workerValues(w *status.Worker) []metric {
	return []metric{
		{"worker_window", "Limit of in-flight data, in the unit of the window.", w.Window},
		{"worker_in_flight_batches", "Attempts without a response yet.", float64(w.InFlight)},
		{"worker_round_trip_seconds", "Smoothed round trip.", w.RoundTrip},
		{"worker_base_round_trip_seconds", "Round trip of an idle worker.", w.Base},
		{"worker_timeout_seconds", "Round trip after which a batch also goes to another worker; " +
			"0 without a timeout.", w.Timeout},
		{"worker_delivered_total", "Attempts that delivered a batch or a part of it.",
			float64(w.Delivered)},
		{"worker_failures_total", "Attempts that failed before they were overdue.",
			float64(w.Failed)},
		{"worker_timeouts_total", "Attempts that were overdue.", float64(w.TimedOut)},
		{"worker_throttles_total", "Attempts whose response asked for a pause.",
			float64(w.Throttled)},
		{"worker_late_total", "Attempts that delivered after they were overdue.", float64(w.Late)},
		{"worker_misconfigured", "1 while the worker reports a wrong token, address or table.",
			oneIf(w.Misconfigured)},
	}
}

var (
	healths = []string{"running", "draining", "finished", "stopped", "restarting", "standby"}
	states  = []string{"UNKNOWN", "NORMAL", "SLOW", "BUSY", "PROBING", "OPEN", "THROTTLED"}

	routeHealth = prometheus.NewDesc("penstock_route_health",
		"1 for the current health of the route.", append(perRoute, "health"), nil)
	workerState = prometheus.NewDesc("penstock_worker_state", "1 for the current state of the "+
		"worker.", append(perWorker, "state"), nil)
	workerGate = prometheus.NewDesc("penstock_worker_gate", "1 for the limit that currently "+
		"stops further sends.",
		append(perWorker, "gate"), nil)
	component = prometheus.NewDesc("penstock_component_events_total", "Events that route, sink "+
		"and processors count.",
		append(perRoute, "event"), nil)
	sourceEvents = prometheus.NewDesc("penstock_source_events_total",
		"Events that the source counts for a route; without a route, for the whole pipeline.",
		append(perRoute, "source", "event"), nil)
	lag = prometheus.NewDesc("penstock_source_lag_bytes",
		"Source bytes that are not read yet; absent if the source does not know.", perRoute, nil)
	ready = prometheus.NewDesc("penstock_ready", "1 if /readyz returns 200.", nil, nil)
	info  = prometheus.NewDesc("penstock_build_info", "Always 1; the version is in the label.",
		[]string{"version", "goversion"}, nil)
	reloads = prometheus.NewDesc("penstock_config_reloads_total", "Reloads of the "+
		"configuration, by result.", []string{"result"}, nil)
	reloadOK = prometheus.NewDesc("penstock_config_last_reload_successful",
		"1 if the last reload of the configuration was successful or there was none.", nil, nil)
	free = prometheus.NewDesc("penstock_state_free_bytes", "Free bytes on the file system of "+
		"the state directory.", nil, nil)
)

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(
		heldMetrics.descs, routeMetrics.descs, workerMetrics.descs, leaseMetrics.descs,
		[]*prometheus.Desc{routeHealth, workerState, workerGate, component, sourceEvents, lag,
			ready, info, free, reloads, reloadOK},
	) {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	s := c.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(ready, oneIf(s.Ready))
	gauge(info, 1, s.Program, runtime.Version())
	if s.Free >= 0 {
		gauge(free, float64(s.Free))
	}
	last := status.Reload{OK: true}
	if s.Reload != nil {
		last = *s.Reload
	}
	gauge(reloadOK, oneIf(last.OK))
	for result, n := range map[string]int{"success": last.Count - last.Failed, "failure": last.Failed} {
		to <- prometheus.MustNewConstMetric(reloads, prometheus.CounterValue, float64(n), result)
	}
	count := func(d *prometheus.Desc, counters map[string]int64, labels ...string) {
		for name, n := range counters {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n),
				append(slices.Clip(labels), name)...)
		}
	}
	for _, src := range s.Sources {
		count(sourceEvents, src.Counters, src.Pipeline, "", src.Name)
		if src.Held != nil {
			heldMetrics.collect(to, src.Held, src.Pipeline, src.Name)
		}
	}
	if s.Cluster != nil {
		for i := range s.Cluster.Leases {
			l := &s.Cluster.Leases[i]
			leaseMetrics.collect(to, l, l.Pipeline)
		}
	}
	for i := range s.Routes {
		r := &s.Routes[i]
		routeMetrics.collect(to, r, r.Pipeline, r.Name)
		if r.LeftBytes >= 0 {
			gauge(lag, float64(r.LeftBytes), r.Pipeline, r.Name)
		}
		for _, h := range healths {
			gauge(routeHealth, oneIf(h == r.Health), r.Pipeline, r.Name, h)
		}
		count(component, r.Counters, r.Pipeline, r.Name)
		count(sourceEvents, r.SourceCounters, r.Pipeline, r.Name, r.Source)
		for k := range r.Workers {
			w := &r.Workers[k]
			workerMetrics.collect(to, w, r.Pipeline, r.Name, w.Name)
			for _, state := range states {
				gauge(workerState, oneIf(state == w.State), r.Pipeline, r.Name, w.Name, state)
			}
			for _, g := range explain.Gates {
				gauge(workerGate, oneIf(g == w.Gate), r.Pipeline, r.Name, w.Name, g)
			}
		}
	}
}

// Registry returns a registry with the metrics of the status, of the process, of the Go runtime,
// and of the collectors in more.
func Registry(status func() status.Status, more ...prometheus.Collector) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{status}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(more...)
	return reg
}
