package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/bench/page"
)

// abouts are the workloads as the page tells them.
func abouts() (all []page.About) {
	for _, w := range workloads {
		all = append(all, page.About{Name: w.name, About: w.about, Limit: w.limitName, LimitAbout: w.limitAbout, Target: w.want.words()})
	}
	return all
}

// words are the targets.
func (w wants) words() string {
	all := []string{"0 lost"}
	if w.ofLimit > 0 {
		all = append(all, fmt.Sprintf("≥ %.3g of the limit", w.ofLimit))
	}
	if w.cpuPerGB > 0 {
		all = append(all, fmt.Sprintf("≤ %.3g CPU-s/GB", w.cpuPerGB))
	}
	if w.rssMiB > 0 {
		all = append(all, fmt.Sprintf("≤ %.0f MiB", w.rssMiB))
	}
	for _, name := range slices.Sorted(maps.Keys(w.most)) {
		all = append(all, fmt.Sprintf("%s ≤ %g", name, w.most[name]))
	}
	return strings.Join(all, ", ")
}
