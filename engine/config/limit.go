package config

import (
	"reflect"

	"go.yaml.in/yaml/v4"

	"github.com/penstock-io/penstock/stream"
)

// limitKey and workerLimitKey are keys of a route. They are also accepted in `flow`, where they
// formerly stood.
const (
	limitKey       = "limit"
	workerLimitKey = "worker_limit"
)

// Limit limits the attempts of a route, in addition to its windows. The key `limit` applies to all
// workers of the sink together, and `worker_limit` to each worker.
type Limit struct {
	// Rate is the maximum number of records per second, including repeated attempts. Zero, the
	// default, means no limit.
	Rate PerSecond `yaml:"rate" doc:"records a second: 100/s, 6000/m or 50000/h"`
	// Bytes is the maximum number of bytes per second, including repeated attempts. Zero, the
	// default, means no limit.
	Bytes BytesPerSecond `yaml:"bytes" doc:"bytes a second: 10MB/s or 600MiB/m"`
	// Concurrency is the maximum number of in-flight batches. Zero, the default, means no limit.
	Concurrency int `yaml:"concurrency" doc:"batches in flight"`
}

// limits returns the limits of a route by their keys.
func (f *Flow) limits() []limitOption {
	return []limitOption{{limitKey, &f.Limit}, {workerLimitKey, &f.WorkerLimit}}
}

type limitOption struct {
	key string
	*Limit
}

// readLimits reads the limits of a route from its keys.
func (f *Flow) readLimits(l *loader, keys map[string]*yaml.Node) {
	for _, o := range f.limits() {
		v, former := keys[o.key], valueOf(keys["flow"], o.key)
		switch {
		case v == nil && former != nil:
			formerName(l, former, "flow."+o.key)
		case v == nil:
		case former != nil:
			bothNames(l, former, "flow."+o.key)
		default:
			l.decode(v, reflect.ValueOf(o.Limit).Elem(), option{name: o.key})
		}
	}
}

// Rates in a Limit.
type (
	PerSecond      = stream.PerSecond
	BytesPerSecond = stream.BytesPerSecond
)
