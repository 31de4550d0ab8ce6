//go:build !no_otlp

package all

import (
	"github.com/penstock-io/penstock/engine/connector/otlp"
	"github.com/penstock-io/penstock/stream"
)

func otlpSource() []stream.Component { return []stream.Component{otlp.Source()} }
