package tail

import (
	"errors"

	"github.com/penstock-io/penstock/stream"
)

// Reread implements stream.Rereadable. It returns the same options, or an error with `start: end`.
func (o *Options) Reread() (stream.Reread, error) {
	if o.Start == "end" {
		return stream.Reread{}, errors.New(
			"tail has `start: end`, and the checkpoint does not tell " +
				"where a file was begun",
		)
	}
	again := *o
	return stream.Reread{Options: &again}, nil
}
