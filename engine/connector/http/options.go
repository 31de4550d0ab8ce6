package http

import (
	"cmp"
	nethttp "net/http"
	"reflect"

	"github.com/penstock-io/penstock/engine/connector/clickhouse"
	"github.com/penstock-io/penstock/engine/connector/elasticsearch"
	"github.com/penstock-io/penstock/engine/connector/loki"
	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// The formats of a body.
const (
	NDJSON = "ndjson" // JSON object per line: the fields of a parsed record, else {"message":"..."}
	Raw    = "raw"    // the records' original bytes, each with its line end

	// a JSON array of the objects that ndjson writes as lines
	JSONArray = "json_array"

	// Former names of the sinks elasticsearch, loki and clickhouse.
	ElasticsearchBulk = "elasticsearch_bulk"
	Loki              = "loki"
	ClickHouse        = "clickhouse"
)

// Options are the options of the sink.
type Options struct {
	httpsink.Options
	Method         string    `yaml:"method" enum:"POST,PUT,PATCH" doc:"method of the requests that deliver batches"`
	Body           string    `yaml:"body" enum:"ndjson,json_array,raw,elasticsearch_bulk,loki,clickhouse" doc:"form of the body"`
	IdempotencyKey expr.Text `yaml:"idempotency_key" doc:"true: a key of route and batch, to detect repetitions; an expression; or false"`
	Accept         expr.Text `yaml:"accept" doc:"condition on status and body of a response that means delivered; default: 2xx"`

	Audit AuditOptions `yaml:"audit" doc:"how penstock audit reads the receiver's records"`

	Elasticsearch elasticsearch.Documents `yaml:"elasticsearch" doc:"former place of the options of the sink elasticsearch"`
	Loki          loki.Streams            `yaml:"loki" doc:"former place of the options of the sink loki"`
	ClickHouse    clickhouse.Insert       `yaml:"clickhouse" doc:"former place of the options of the sink clickhouse"`

	accept *expr.Program // nil if every 2xx is accepted
	key    *expr.Program // nil if the key is the batch's id, or there is none
	line   *expr.Program // for audit.id; nil if the line is the record
}

// DefaultOptions returns options that post JSON lines with an idempotency key.
func DefaultOptions() *Options {
	return &Options{
		Options: httpsink.DefaultOptions(), Method: nethttp.MethodPost, Body: NDJSON,
		IdempotencyKey: keyOfBatch, Elasticsearch: elasticsearch.DefaultDocuments(),
		Loki: loki.DefaultStreams(), ClickHouse: clickhouse.DefaultInsert(),
	}
}

// Validate returns an error for an invalid option. It also reads the certificate file that tls.ca
// names.
func (o *Options) Validate() error {
	return cmp.Or(o.check(), o.CheckFiles())
}

// check is like Validate, but does not read the certificate file.
func (o *Options) check() error {
	return cmp.Or(o.Options.Check(), stream.CheckEnums(o), o.checkAccept(), o.checkAudit(),
		o.checkStore())
}

// checkStore checks the options for the store that the option body selects: Elasticsearch, Loki or
// ClickHouse. It returns an error if options are set for a store that body does not select, because
// these would have no effect.
func (o *Options) checkStore() error {
	standard := DefaultOptions()
	for _, s := range []struct {
		key, body    string
		value, unset any
		check        func() error
	}{
		{"elasticsearch", ElasticsearchBulk, o.Elasticsearch, standard.Elasticsearch, o.Elasticsearch.Check},
		{"loki", Loki, o.Loki, standard.Loki, o.Loki.Check},
		{"clickhouse", ClickHouse, o.ClickHouse, standard.ClickHouse, o.ClickHouse.Check},
	} {
		switch {
		case o.Body == s.body:
			if err := httpsink.Within(s.key, s.check()); err != nil {
				return err
			}
		case isSet(reflect.ValueOf(s.value), reflect.ValueOf(s.unset)):
			return stream.OptionErrorf(s.key, "needs body: %s, but body is %s", s.body, o.Body)
		}
	}
	if o.Body == ClickHouse {
		return clickhouse.CheckEndpoints(o.Endpoints)
	}
	return httpsink.Within("elasticsearch", o.Elasticsearch.CheckKey(&o.Options))
}

// isSet reports whether the struct v sets any option. This means that v has an exported field that
// is neither empty nor equal to the same field of standard, which has the defaults.
func isSet(v, standard reflect.Value) bool {
	for field, value := range v.Fields() {
		kind := value.Kind()
		empty := value.IsZero() || (kind == reflect.Map || kind == reflect.Slice) && value.Len() == 0
		if !field.IsExported() || empty {
			continue
		}
		unset := standard.FieldByIndex(field.Index).Interface()
		if !reflect.DeepEqual(value.Interface(), unset) {
			return true
		}
	}
	return false
}

// FromEnvironment implements stream.EnvironmentUser. It returns a line of text for each URL in the
// option endpoints that is reached through a proxy.
func (o *Options) FromEnvironment() []string {
	c, err := o.codec()
	if err != nil {
		return nil
	}
	return o.Environment(c.Format())
}
