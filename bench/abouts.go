package main

import (
	"maps"
	"slices"

	"github.com/penstock-io/penstock/bench/page"
	"github.com/penstock-io/penstock/bench/result"
)

// abouts returns the descriptions of the workloads for the page.
func abouts() (all []page.About) {
	for _, w := range workloads {
		if w.name == limitsName {
			continue
		}
		all = append(all, page.About{Name: w.name, About: w.about, Limit: w.limitName,
			LimitAbout: w.limitAbout, Targets: w.want.targets()})
	}
	return all
}

// targets returns the targets of a workload. Each target is a bound on one figure.
func (w wants) targets() []result.Target {
	all := []result.Target{}
	if w.ofLimit > 0 {
		all = append(all, result.Target{Metric: "of_limit", Bound: w.ofLimit, Least: true})
	}
	if w.cpuPerGB > 0 {
		all = append(all, result.Target{Metric: "cpu_s_per_gb", Bound: w.cpuPerGB})
	}
	if w.rssMiB > 0 {
		all = append(all, result.Target{Metric: "rss_mb", Bound: w.rssMiB})
	}
	all = append(all, result.Target{Metric: "lost"})
	// Repeated records are allowed only in workloads with kills. These set a bound themselves.
	if _, some := w.most["repeated"]; !some && w.most["repeated_of_bound"] == 0 {
		all = append(all, result.Target{Metric: "repeated"})
	}
	for _, name := range slices.Sorted(maps.Keys(w.least)) {
		all = append(all, result.Target{Metric: name, Bound: w.least[name], Least: true})
	}
	for _, name := range slices.Sorted(maps.Keys(w.most)) {
		all = append(all, result.Target{Metric: name, Bound: w.most[name]})
	}
	return all
}

// missed returns the targets that the line l of results misses.
func (w wants) missed(l result.Line) (missed []string) {
	for _, t := range w.targets() {
		if by := t.Missed(l); by != "" {
			missed = append(missed, l.Workload+" misses "+t.String()+": "+by)
		}
	}
	return missed
}
