package compare

import (
	"context"

	"github.com/thejerf/suture/v4"

	"github.com/penstock-io/penstock/supervise"
)

// oursServices keeps three services running.
func oursServices(ctx context.Context) error {
	tree, err := supervise.New("shop", supervise.Spec{},
		supervise.Child{Name: "web", Run: serve},
		supervise.Child{Name: "mail", Run: serve},
		supervise.Child{Name: "import", Run: serve},
	)
	if err != nil {
		return err
	}
	return tree.Serve(ctx)
}

// theirsServices keeps three services running with suture.
func theirsServices(ctx context.Context) error {
	tree := suture.NewSimple("shop")
	tree.Add(theirsServicesFunc{"web", serve})
	tree.Add(theirsServicesFunc{"mail", serve})
	tree.Add(theirsServicesFunc{"import", serve})
	return tree.Serve(ctx)
}

// theirsServicesFunc is a function that implements suture.Service.
type theirsServicesFunc struct {
	name string
	run  func(context.Context) error
}

func (f theirsServicesFunc) Serve(ctx context.Context) error { return f.run(ctx) }
func (f theirsServicesFunc) String() string                  { return f.name }
