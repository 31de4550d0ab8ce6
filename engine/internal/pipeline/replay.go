package pipeline

import (
	"fmt"
	"path/filepath"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/stream"
)

// replaySource is the name of the source of a replay.
const replaySource = "dead_letters"

// ReplayConfig returns a config with one route of c, whose source is the dead letters that match
// the filter, each once. They pass through the route's own processors and sink, on its own
// checkpoint, which records each letter as settled. A letter that is refused again becomes a new
// letter. Run it with Options.Once, while no other process has the state directory.
func ReplayConfig(c config.Config, pipelineName, routeName string, filter deadletter.Filter) (config.Config, error) {
	for _, p := range c.Pipelines {
		for _, r := range p.Routes {
			if p.Name != pipelineName || r.Name != routeName {
				continue
			}
			path := LettersPath(p, r)
			p.Routes = []config.Route{r}
			p.Source = config.Use{Component: stream.Component{
				Role: stream.SourceRole, Name: replaySource,
				New: func(_ any, h stream.Host) (any, error) {
					return &deadletter.Source{FS: h.FS(), Path: path, Filter: filter}, nil
				},
			}, Where: p.Where}
			c.Pipelines = []config.Pipeline{p}
			c.Admin = config.Admin{}
			return c, nil
		}
	}
	return config.Config{}, fmt.Errorf("the config has no route %s/%s", pipelineName, routeName)
}

// LettersPath is the file of a route's dead letters.
func LettersPath(p config.Pipeline, r config.Route) string {
	return filepath.Join(r.DeadLetters.Dir, deadletter.FileName(p.Name, r.Name))
}

// Boot names this run of the operating system; "" where it does not tell.
func Boot() string { return bootID() }
