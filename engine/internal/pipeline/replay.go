package pipeline

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/penstock-io/penstock/engine/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
	"github.com/penstock-io/penstock/engine/kit/intake"
	"github.com/penstock-io/penstock/stream"
)

// replaySource is the name of the source of a replay.
const replaySource = "dead_letters"

// ReplayConfig returns a config that delivers the dead letters of one route of c again. Its source
// reads the letters that match the filter, each once. They pass through the processors and the sink
// of the route. The route's checkpoint records which letters are settled. A letter that is refused
// again becomes a new letter.
//
// Run the config with Options.Once, while no other process uses the state directory.
func ReplayConfig(
	c config.Config, pipelineName, routeName string, filter deadletter.Filter,
) (config.Config, error) {
	for _, p := range c.Pipelines {
		for _, r := range p.Routes {
			if p.Name == pipelineName && r.Name == routeName {
				c.Pipelines = []config.Pipeline{replayOf(p, r, filter)}
				c.Admin, c.Cluster = config.Admin{}, config.Cluster{}
				return c, nil
			}
		}
	}
	return config.Config{}, fmt.Errorf("the config has no route %s/%s", pipelineName, routeName)
}

// replayOf returns a pipeline with one route, like route r of p but with the dead letters of r as
// its source.
func replayOf(p config.Pipeline, r config.Route, filter deadletter.Filter) config.Pipeline {
	path := LettersPath(p, r)
	p.Routes = []config.Route{r}
	var keep time.Duration
	if o, ok := p.Source.Options.(stream.RequestOptions); ok {
		keep = o.KeepRequests()
	}
	own, objects := p.Source, false
	if o, ok := own.Options.(stream.ObjectOptions); ok {
		objects = o.ReadsObjects()
	}
	p.Source = config.Use{Component: stream.Component{
		Role: stream.SourceRole, Name: replaySource,
		New: func(_ any, h stream.Host) (any, error) {
			source, err := Construct[stream.Source](own, h)
			if err != nil {
				return nil, err
			}
			a, ok := source.(stream.AssignedSource)
			letters := &deadletter.Source{FS: h.FS(), Path: path, Filter: filter, Keep: keep,
				Assigned: ok && a.HasAssignments()}
			if objects {
				letters.Fields = new(intake.Objects).Add
			}
			return letters, nil
		},
	}, Where: p.Where}
	return p
}

// isReplay reports whether the pipeline delivers dead letters.
func (p *pipe) isReplay() bool { return p.cfg.Source.Component.Name == replaySource }

// LettersPath returns the path of a route's dead-letter file.
func LettersPath(p config.Pipeline, r config.Route) string {
	return filepath.Join(r.DeadLetters.Dir, deadletter.FileName(p.Name, r.Name))
}
