//go:build no_otlp

package all

import "github.com/penstock-io/penstock/stream"

func otlpSource() []stream.Component { return nil }
