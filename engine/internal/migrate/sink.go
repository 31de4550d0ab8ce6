//penstock:pure

package migrate

import (
	"maps"
	"slices"
)

// Sink describes a sink of the new config, regardless of the original program. Each kind of sink
// uses some of the fields.
type Sink struct {
	Kind string // elasticsearch, loki, clickhouse, http, kafka, file, stdout, drop

	Endpoints      []string
	Body           string // for http: ndjson, json_array, raw
	Headers        map[string]string
	User, Password string
	Bearer         string
	CA, Cert, Key  string
	Gzip           bool

	Index           string // for elasticsearch
	Labels          map[string]string
	LabelFields     []string
	Table, Database string

	Brokers     []string
	Topic       string
	Compression string

	Path   string
	Format string // for file, stdout, kafka: raw, ndjson, json
}

// SetHeader sets a header of the requests.
func (s *Sink) SetHeader(name, value string) {
	if s.Headers == nil {
		s.Headers = make(map[string]string)
	}
	s.Headers[name] = value
}

// Write writes the sink of a route as YAML.
func (s Sink) Write(w *Writer, depth int) {
	w.Put(depth, "sink:")
	depth++
	switch s.Kind {
	case "drop":
		w.Put(depth, "drop: {}")
	case "stdout":
		w.Put(depth, "stdout: { format: %s }", s.Format)
	case "file":
		w.Put(depth, "file: { path: %s, format: %s }", QuoteVariables(s.Path), s.Format)
	case "kafka":
		s.writeKafka(w, depth)
	default:
		s.writeHTTP(w, depth)
	}
}

func (s Sink) writeKafka(w *Writer, depth int) {
	w.Put(depth, "kafka:")
	depth++
	w.Put(depth, "brokers: %s", QuoteList(s.Brokers))
	w.Put(depth, "topic: %s", QuoteVariables(s.Topic))
	w.Put(depth, "format: %s", s.Format)
	if s.Compression != "" {
		w.Put(depth, "compress: %s", s.Compression)
	}
	s.writeTLS(w, depth)
}

// writeHTTP writes a sink of the kind elasticsearch, loki or clickhouse. For any other kind, it
// writes a sink of the kind http.
func (s Sink) writeHTTP(w *Writer, depth int) {
	name := "http"
	if s.Kind == "elasticsearch" || s.Kind == "loki" || s.Kind == "clickhouse" {
		name = s.Kind
	}
	w.Put(depth, "%s:", name)
	depth++
	w.Put(depth, "endpoints: %s", QuoteList(s.Endpoints))
	switch s.Kind {
	case "elasticsearch":
		if s.Index != "" {
			w.Put(depth, "index: %s", QuoteVariables(s.Index))
		}
	case "loki":
		s.writeLabels(w, depth)
	case "clickhouse":
		w.Put(depth, "table: %s", QuoteVariables(s.Table))
		w.Put(depth, "database: %s", QuoteVariables(s.Database))
	default:
		w.Put(depth, "body: %s", s.Body)
	}
	if s.Gzip {
		w.Put(depth, "compress: gzip")
	}
	s.writeAccess(w, depth)
	s.writeTLS(w, depth)
}

func (s Sink) writeLabels(w *Writer, depth int) {
	if len(s.Labels) > 0 {
		w.Put(depth, "labels:")
		for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
			w.Put(depth+1, "%s: %s", name, QuoteVariables(s.Labels[name]))
		}
	}
	if len(s.LabelFields) > 0 {
		w.Put(depth, "label_fields: %s", QuoteList(s.LabelFields))
	}
}

func (s Sink) writeAccess(w *Writer, depth int) {
	if len(s.Headers) > 0 {
		w.Put(depth, "headers:")
		for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
			w.Put(depth+1, "%s: %s", QuoteVariables(name), QuoteVariables(s.Headers[name]))
		}
	}
	if s.User != "" {
		w.Put(depth, "basic: { user: %s, password: %s }", QuoteVariables(s.User),
			QuoteVariables(s.Password))
	}
	if s.Bearer != "" {
		w.Put(depth, "bearer: %s", QuoteVariables(s.Bearer))
	}
}

func (s Sink) writeTLS(w *Writer, depth int) {
	if s.CA == "" && s.Cert == "" {
		return
	}
	w.Put(depth, "tls:")
	for _, f := range []struct{ name, path string }{
		{"ca", s.CA}, {"cert", s.Cert}, {"key", s.Key},
	} {
		if f.path != "" {
			w.Put(depth+1, "%s: %s", f.name, QuoteVariables(f.path))
		}
	}
}
