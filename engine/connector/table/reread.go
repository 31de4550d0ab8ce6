package table

import "github.com/penstock-io/penstock/stream"

// Reread implements stream.Rereadable. When rows are read again, late rows have no partition of
// their own, but come in order among the other rows.
func (o *Options) Reread() (stream.Reread, error) {
	again := *o
	again.Rescan = 0
	return stream.Reread{Options: &again}, nil
}
