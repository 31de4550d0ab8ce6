package table

import "github.com/penstock-io/penstock/stream"

// Reread implements stream.Rereadable. Rows that came late are read in their places.
func (o *Options) Reread() (stream.Reread, error) {
	again := *o
	again.Rescan = 0
	return stream.Reread{Options: &again}, nil
}
