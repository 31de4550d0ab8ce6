//go:build no_kafka

package all

import "github.com/penstock-io/penstock/stream"

func kafkaSource() []stream.Component { return nil }

func kafkaSink() []stream.Component { return nil }
