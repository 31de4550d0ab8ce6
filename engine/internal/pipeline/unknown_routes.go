package pipeline

import (
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/checkpoint"
)

// reportUnknownState logs that the checkpoint has state of routes that are not in the config c. It
// also logs the routes of c that start from the beginning, because one of them may be a renamed
// route. A reload often removes a route. So on a reload, nothing is logged if all routes of c run
// already or have state. In a replay, nothing is logged, because its config has only one route.
func (e *Engine) reportUnknownState(store *checkpoint.Store, c *config.Config, reload bool) {
	var running, configured, fresh, strays []string
	if reload {
		for s := range e.slots() {
			running = append(running, s.key)
		}
	}
	for _, p := range c.Pipelines {
		if p.Source.Component.Name == replaySource {
			return
		}
		for _, r := range p.Routes {
			key := p.Name + "/" + r.Name
			configured = append(configured, key)
			if !hasState(store, key) && !slices.Contains(running, key) {
				fresh = append(fresh, key)
			}
		}
	}
	for _, kept := range store.Routes() {
		key, _, _ := strings.Cut(kept, checkpoint.BootMark)
		if !slices.Contains(configured, key) && !slices.Contains(strays, key) &&
			hasState(store, key) {
			strays = append(strays, key)
		}
	}
	if len(strays) == 0 || reload && len(fresh) == 0 {
		return
	}
	e.o.Log.Warn("the state directory has checkpoints of routes that are not in the config",
		"state", e.cfg.State, "routes", strays)
	for _, key := range fresh {
		e.o.Log.Warn("route starts from the beginning; if it was renamed, give it its old name "+
			"to resume", "route", key, "others", strays)
	}
}

// hasState reports whether either layer of the checkpoint has anything of a route.
func hasState(store *checkpoint.Store, key string) bool {
	for _, kept := range store.Routes() {
		if route, _, _ := strings.Cut(kept, checkpoint.BootMark); route != key {
			continue
		}
		for range store.Marks(kept) {
			return true
		}
		if len(store.Places(kept)) > 0 {
			return true
		}
	}
	return false
}
