package pipeline

import (
	"fmt"
	"path/filepath"

	"github.com/penstock-io/penstock"
	"github.com/penstock-io/penstock/engine/internal/config"
	"github.com/penstock-io/penstock/engine/internal/deadletter"
)

// NewReplay assembles one route of f so that it delivers the dead letters that the filter means, once each: through the route's own
// processors and sink, on the route's own checkpoint, which notes of each letter that it is settled. A letter that is refused again
// becomes a new letter. It ends when all of them have settled, and runs only where no other process has the state directory.
func NewReplay(f *config.File, pipelineName, routeName string, filter deadletter.Filter, o Options) (*Engine, error) {
	for _, p := range f.Pipelines {
		for _, r := range p.Routes {
			if p.Name != pipelineName || r.Name != routeName {
				continue
			}
			path := LettersPath(p, r)
			replay := *f
			p.Routes = []config.Route{r}
			p.Source = config.Use{Component: penstock.Component{
				Role: penstock.SourceRole, Name: "dead_letters",
				New: func(_ any, h penstock.Host) (any, error) {
					return &deadletter.Source{FS: h.FS(), Path: path, Filter: filter}, nil
				},
			}, Where: p.Where}
			replay.Pipelines = []config.Pipeline{p}
			o.Once, o.Admin = true, &config.Admin{Address: config.AdminOff}
			return New(&replay, o)
		}
	}
	return nil, fmt.Errorf("the config has no route %s/%s", pipelineName, routeName)
}

// LettersPath is the file of a route's dead letters.
func LettersPath(p config.Pipeline, r config.Route) string {
	return filepath.Join(r.DeadLetters.Dir, deadletter.FileName(p.Name, r.Name))
}

// Boot names this run of the operating system; "" where it does not tell.
func Boot() string { return bootID() }
