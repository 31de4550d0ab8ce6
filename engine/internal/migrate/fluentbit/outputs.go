//penstock:pure

package fluentbit

import (
	"cmp"
	"path"
	"strings"

	"github.com/penstock-io/penstock/engine/internal/migrate"
)

// routes converts the outputs that get the records with a tag to routes.
func (c *converter) routes(tag string) []migrate.Route {
	var out []migrate.Route
	for _, v := range c.outputs {
		if !matches(v, tag) {
			continue
		}
		kind := strings.ToLower(v.Text("name"))
		r := migrate.Route{Name: cmp.Or(v.Text("alias"), kind), Missing: "the output " + kind}
		switch kind {
		case "es", "opensearch":
			r.Sink = c.elasticsearch(v)
		case "loki":
			r.Sink = c.loki(v)
		case "http":
			r.Sink = c.http(v)
		case "kafka":
			r.Sink = c.kafka(v)
		case "file":
			r.Sink = c.file(v, tag)
		case "stdout":
			r.Sink = migrate.Sink{Kind: "stdout", Format: "ndjson"}
			v.Ignore("format", "json_date_key", "json_date_format")
		case "null":
			r.Sink = migrate.Sink{Kind: "drop"}
		default:
			c.NoteLost(v, "the output %q is not converted: docs/README.md lists the sinks of "+
				"penstock", kind)
		}
		v.Ignore("retry_limit", "workers", "log_level", "storage.total_limit_size", "compress",
			"net.keepalive", "net.connect_timeout", "net.keepalive_idle_timeout",
			"net.keepalive_max_recycle", "buffer_size")
		out = append(out, r)
	}
	return out
}

// endpoint returns the URL of an output.
func endpoint(v *migrate.Value, port, path string) string {
	scheme := "http"
	if v.IsTrue("tls") {
		scheme = "https"
	}
	host := cmp.Or(v.Text("host"), "127.0.0.1")
	return scheme + "://" + host + ":" + cmp.Or(v.Text("port"), port) + path
}

// access converts the options for user names, tokens and certificates.
func (c *converter) access(v *migrate.Value, s *migrate.Sink) {
	s.User, s.Password = v.Text("http_user"), v.Text("http_passwd")
	s.Bearer = v.Text("bearer_token")
	s.Gzip = strings.EqualFold(v.Text("compress"), "gzip")
	s.CA, s.Cert, s.Key = v.Text("tls.ca_file"), v.Text("tls.crt_file"), v.Text("tls.key_file")
	if check := v.Get("tls.verify"); check != nil && !check.IsTrue() {
		c.NoteVerified(check)
	}
	v.Ignore("tls.debug", "tls.vhost", "tls.key_passwd")
}

func (c *converter) elasticsearch(v *migrate.Value) migrate.Sink {
	s := migrate.Sink{Kind: "elasticsearch", Index: v.Text("index")}
	s.Endpoints = []string{endpoint(v, "9200", path.Join("/", v.Text("path"), "_bulk"))}
	if p := v.Text("pipeline"); p != "" {
		s.Endpoints[0] += "?pipeline=" + p
	}
	if s.Index == "" {
		s.Index = "fluent-bit"
	}
	if v.IsTrue("logstash_format") {
		prefix := cmp.Or(v.Text("logstash_prefix"), "logstash")
		s.Index = prefix
		c.Note(v.Get("logstash_format"), migrate.Differs, "records go to one index, %q, instead "+
			"of one per day: use a data stream, or an alias with a rollover", prefix)
	}
	c.access(v, &s)
	c.Note(v, migrate.Differs, "documents have only the fields of the record: no @timestamp is "+
		"added")
	v.Ignore("type", "suppress_type_name", "logstash_prefix", "logstash_dateformat", "time_key",
		"time_key_format", "replace_dots", "trace_output", "trace_error", "current_time_index",
		"generate_id", "write_operation", "include_tag_key", "tag_key", "time_key_nanos")
	return s
}

func (c *converter) loki(v *migrate.Value) migrate.Sink {
	uri := cmp.Or(v.Text("uri"), "/loki/api/v1/push")
	s := migrate.Sink{Kind: "loki", Endpoints: []string{endpoint(v, "3100", uri)},
		Labels: make(map[string]string)}
	labels := cmp.Or(v.Text("labels"), "job=fluent-bit")
	for _, pair := range strings.Split(labels, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if field, ok := strings.CutPrefix(value, "$"); ok {
			s.LabelFields = append(s.LabelFields, field)
			if field != name {
				c.Note(v.Get("labels"), migrate.Differs, "the label %s gets the name of its "+
					"field, %s", name, field)
			}
			continue
		}
		s.Labels[name] = value
	}
	for _, key := range split(v.Text("label_keys")) {
		s.LabelFields = append(s.LabelFields, strings.TrimPrefix(key, "$"))
	}
	if tenant := v.Text("tenant_id"); tenant != "" {
		s.SetHeader("X-Scope-OrgID", tenant)
	}
	c.access(v, &s)
	v.Ignore("line_format", "auto_kubernetes_labels", "drop_single_key")
	return s
}

func (c *converter) http(v *migrate.Value) migrate.Sink {
	uri := cmp.Or(v.Text("uri"), "/")
	s := migrate.Sink{Kind: "http", Endpoints: []string{endpoint(v, "80", uri)}, Body: "json_array"}
	switch format := v.Text("format"); format {
	case "json":
	case "json_lines", "json_stream":
		s.Body = "ndjson"
	default:
		c.Note(v, migrate.Differs, "the body is a JSON array, not %s",
			map[bool]string{true: "msgpack", false: format}[format == ""])
	}
	for _, text := range v.Texts("header") {
		name, value, _ := strings.Cut(text, " ")
		s.SetHeader(name, strings.TrimSpace(value))
	}
	c.access(v, &s)
	v.Ignore("json_date_key", "json_date_format", "allow_duplicated_headers",
		"log_response_payload")
	return s
}

func (c *converter) kafka(v *migrate.Value) migrate.Sink {
	topics := split(v.Text("topics"))
	s := migrate.Sink{Kind: "kafka", Brokers: split(v.Text("brokers")), Topic: "fluent-bit",
		Format: "json"}
	if len(topics) > 0 {
		s.Topic = topics[0]
	}
	if len(topics) > 1 {
		c.Note(v.Get("topics"), migrate.Differs, "all records go to the first topic; an "+
			"expression as topic selects one per record")
	}
	v.Ignore("format", "timestamp_key", "timestamp_format", "message_key", "queue_full_retries")
	for _, name := range v.Names() {
		if strings.HasPrefix(name, "rdkafka.") {
			c.Note(v.Get(name), migrate.Lost, "options of librdkafka are not supported: see "+
				"docs/kafka.md")
		}
	}
	return s
}

func (c *converter) file(v *migrate.Value, tag string) migrate.Sink {
	name := cmp.Or(v.Text("file"), strings.ReplaceAll(tag, "*", ""))
	c.Note(v, migrate.Differs, "lines are JSON objects without the tag and the time of the format "+
		"%q", cmp.Or(v.Text("format"), "out_file"))
	v.Ignore("template", "delimiter", "label_delimiter", "mkdir", "csv_column_names")
	return migrate.Sink{Kind: "file", Path: path.Join(v.Text("path"), name), Format: "ndjson"}
}
