//go:build no_nats

package all

import "github.com/penstock-io/penstock/stream"

func natsSource() []stream.Component { return nil }

func natsSink() []stream.Component { return nil }
