package postgres

import (
	"runtime"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/sqltable"
	"github.com/penstock-io/penstock/stream"
)

// TestDefaultWorkers checks the default number of connections to a server on this machine, which
// follows the number of processors.
func TestDefaultWorkers(t *testing.T) {
	beside := func(processors int) int { return min(4, max(2, processors)) }
	for _, c := range []struct {
		url     string
		workers int
		mode    string
		want    func(processors int) int
	}{
		{"postgres://u@127.0.0.1:5432/d", 0, sqltable.Append, beside},
		{"postgres://u@localhost/d", 0, sqltable.Append, beside},
		{"postgres://u@[::1]/d", 0, sqltable.Append, beside},
		{"host=/run/postgresql user=u", 0, sqltable.Append, beside},
		{"postgres://u@192.0.2.1/d", 0, sqltable.Append, func(int) int { return 4 }},
		{"postgres://u@database.example/d", 0, sqltable.Append, func(int) int { return 4 }},
		{"postgres://u@localhost/d", 7, sqltable.Append, func(int) int { return 7 }},
		{"postgres://u@localhost/d", 0, sqltable.Upsert, func(int) int { return 1 }},
	} {
		for processors := 1; processors <= 5; processors++ {
			before := runtime.GOMAXPROCS(processors)
			o := *DefaultOptions()
			o.URL, o.Table, o.Mode, o.Workers = c.url, "t", c.mode, c.workers
			if c.mode == sqltable.Upsert {
				o.Key = []string{"k"}
			}
			s, err := New(o, connectortest.NewHost(t))
			if err != nil {
				t.Fatal(err)
			}
			lanes := 0
			err = s.Open(t.Context(), stream.SinkOptions{Pipeline: "p", Route: "r", Lanes: func(l []stream.Lane) {
				lanes = len(l)
			}})
			runtime.GOMAXPROCS(before)
			if want := c.want(processors); err != nil || lanes != want {
				t.Errorf("%s, workers %d, %s, %d processors: %d lanes, %v; want %d", c.url,
					c.workers, c.mode, processors, lanes, err, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
