//penstock:pure

package vector

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// sink converts a sink. If there is no equivalent, the Kind of the result is "".
func (c *converter) sink(v *migrate.Value, kind string) migrate.Sink {
	s := migrate.Sink{Gzip: v.Text("compression") == "gzip"}
	c.access(v, &s)
	switch kind {
	case "elasticsearch":
		c.elasticsearch(v, &s)
	case "loki":
		c.loki(v, &s)
	case "http":
		c.http(v, &s)
	case "clickhouse":
		s.Kind, s.Endpoints = kind, v.Texts("endpoint")
		s.Table, s.Database = v.Text("table"), cmp.Or(v.Text("database"), "default")
	case "kafka":
		s.Kind, s.Topic, s.Format = kind, v.Text("topic"), format(v, "json")
		s.Brokers = strings.Split(v.Text("bootstrap_servers"), ",")
		s.Compression = v.Text("compression")
		c.template(v.Get("topic"), s.Topic)
	case "file":
		s.Kind, s.Path, s.Format = kind, v.Text("path"), format(v, "ndjson")
		if i := strings.IndexAny(s.Path, "%{"); i >= 0 {
			c.Note(v.Get("path"), migrate.Differs, "paths by time or field are not supported: "+
				"one file is written, and the option rotate renames it")
			s.Path = regexp.MustCompile(`[-_.]?(%[a-zA-Z]|\{\{[^}]*\}\})`).
				ReplaceAllString(s.Path, "")
		}
	case "console":
		s.Kind, s.Format = "stdout", format(v, "ndjson")
	case "blackhole":
		s.Kind = "drop"
	default:
		c.Note(v, migrate.Lost, "the sink %q is not converted: docs/README.md lists the sinks of "+
			"penstock", kind)
		return migrate.Sink{}
	}
	c.Note(v.Get("buffer"), migrate.Unneeded, "penstock has no buffer: unread data stays in the "+
		"files, and the checkpoint has the position in each")
	return s
}

// format returns "raw" if the codec of the sink writes only the message of a record. Otherwise the
// sink writes whole records, and format returns object, the name of a format for whole records,
// such as "json".
func format(v *migrate.Value, object string) string {
	switch v.Text("encoding", "codec") {
	case "text", "raw_message":
		return "raw"
	}
	return object
}

// template adds a note if text, the value of v, contains a template.
func (c *converter) template(v *migrate.Value, text string) {
	if strings.Contains(text, "{{") || strings.Contains(text, "%") {
		c.Note(v, migrate.Differs, "templates are expressions in penstock, where the option "+
			"accepts them: write %q as one", text)
	}
}

func (c *converter) access(v *migrate.Value, s *migrate.Sink) {
	switch v.Text("auth", "strategy") {
	case "", "basic":
		s.User, s.Password = v.Text("auth", "user"), v.Text("auth", "password")
	case "bearer":
		s.Bearer = v.Text("auth", "token")
	default:
		c.Note(v.Get("auth", "strategy"), migrate.Lost, "is not supported: use basic or bearer")
	}
	tls := v.Get("tls")
	s.CA, s.Cert, s.Key = tls.Text("ca_file"), tls.Text("crt_file"), tls.Text("key_file")
	if check := v.Get("tls", "verify_certificate"); check != nil && !check.IsTrue() {
		c.NoteVerified(check)
	}
	headers := v.Get("request", "headers")
	for _, name := range headers.Names() {
		s.SetHeader(name, headers.Text(name))
	}
}

func (c *converter) elasticsearch(v *migrate.Value, s *migrate.Sink) {
	s.Kind = "elasticsearch"
	for _, e := range append(v.Texts("endpoints"), v.Texts("endpoint")...) {
		s.Endpoints = append(s.Endpoints, withPath(e, "_bulk", "pipeline", v.Text("pipeline")))
	}
	s.Index = v.Text("bulk", "index")
	switch {
	case v.Text("mode") == "data_stream":
		part := []string{"logs", "generic", "default"}
		for i, key := range []string{"type", "dataset", "namespace"} {
			part[i] = cmp.Or(v.Text("data_stream", key), part[i])
		}
		s.Index = strings.Join(part, "-")
		c.Note(v.Get("mode"), migrate.Differs, "documents of a data stream need @timestamp: set "+
			"it from a field")
	case s.Index == "" || strings.ContainsAny(s.Index, "%{"):
		c.Note(v, migrate.Differs, "an index by day or field (%q) became the single index %q: "+
			"use a data stream, or an alias with a rollover", s.Index, "vector")
		s.Index = "vector"
	}
}

// withPath adds the part last to the end of the path of the URL in text. If value is not "", it
// also replaces the query of the URL by key=value. It returns text unchanged if it is not a URL.
func withPath(text, last, key, value string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return text
	}
	u.Path = path.Join("/", u.Path, last)
	if value != "" {
		u.RawQuery = url.Values{key: {value}}.Encode()
	}
	return u.String()
}

var onlyField = regexp.MustCompile(`^\{\{\s*\.?([\w.]+)\s*\}\}$`)

func (c *converter) loki(v *migrate.Value, s *migrate.Sink) {
	s.Kind, s.Labels = "loki", make(map[string]string)
	prefix := cmp.Or(v.Text("path"), "/loki/api/v1/push")
	for _, e := range v.Texts("endpoint") {
		s.Endpoints = append(s.Endpoints, withPath(e, prefix, "", ""))
	}
	labels := v.Get("labels")
	for _, name := range labels.Names() {
		value := labels.Text(name)
		m := onlyField.FindStringSubmatch(value)
		switch {
		case m != nil:
			s.LabelFields = append(s.LabelFields, m[1])
			if m[1] != name {
				c.Note(labels.Get(name), migrate.Differs, "the label gets the name of its field, "+
					"%s", m[1])
			}
		case strings.Contains(value, "{{"):
			c.Note(labels.Get(name), migrate.Lost, "labels are constants or fields in penstock")
		default:
			s.Labels[name] = value
		}
	}
	if tenant := v.Text("tenant_id"); tenant != "" {
		s.SetHeader("X-Scope-OrgID", tenant)
		c.template(v.Get("tenant_id"), tenant)
	}
}

func (c *converter) http(v *migrate.Value, s *migrate.Sink) {
	s.Kind, s.Endpoints, s.Body = "http", v.Texts("uri"), "json_array"
	switch {
	case v.Text("framing", "method") == "newline_delimited" && format(v, "json") == "json":
		s.Body = "ndjson"
	case format(v, "json") == "raw":
		s.Body = "raw"
	}
	if m := v.Text("method"); m != "" && m != "post" {
		c.Note(v.Get("method"), migrate.Differs, "the method is POST: set method to %s",
			strings.ToUpper(m))
	}
}
