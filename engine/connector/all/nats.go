//go:build !no_nats

package all

import (
	"github.com/penstock-io/penstock/engine/connector/nats"
	"github.com/penstock-io/penstock/stream"
)

func natsSource() []stream.Component { return []stream.Component{nats.Source()} }

func natsSink() []stream.Component { return []stream.Component{nats.Sink()} }
