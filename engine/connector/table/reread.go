package table

import "github.com/penstock-io/penstock/stream"

// Reread implements stream.Rereadable. Late rows are then read in their order among the others.
func (o *Options) Reread() (stream.Reread, error) {
	again := *o
	again.Rescan = 0
	return stream.Reread{Options: &again}, nil
}
