//go:build !no_kafka

package all

import (
	"github.com/penstock-io/penstock/engine/connector/kafka"
	"github.com/penstock-io/penstock/stream"
)

func kafkaSource() []stream.Component { return []stream.Component{kafka.Source()} }

func kafkaSink() []stream.Component { return []stream.Component{kafka.Sink()} }
