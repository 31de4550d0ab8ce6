// Package elasticsearch implements the sink that indexes batches in Elasticsearch, OpenSearch and
// compatible stores. It uses bulk requests.
package elasticsearch

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/expr"
	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the sink.
type Options struct {
	httpsink.Options
	Documents
}

// Documents has the options that are specific to Elasticsearch.
type Documents struct {
	Index      expr.Text `yaml:"index" doc:"index: name or expression; without it the endpoint's path names the index, as in /logs/_bulk"`
	DataStream expr.Text `yaml:"data_stream" doc:"data stream: a name or an expression, in place of index; documents have an @timestamp"`
	Action     string    `yaml:"action" enum:"create,index" doc:"create never overwrites a document; index does"`
	ID         string    `yaml:"id" enum:"record,none" doc:"record: the record's id, to detect repetitions; none: the store assigns one"`
	IDField    string    `yaml:"id_field" doc:"field with the document's id; for records without this field, id applies"`
	Timestamp  string    `yaml:"timestamp" doc:"field with the record's time, for @timestamp; data_stream without it: the time of reading"`
	Routing    expr.Text `yaml:"routing" doc:"an expression: the document's routing value; none if null or empty"`
	Pipeline   string    `yaml:"pipeline" doc:"ingest pipeline of the store"`
	APIKey     string    `yaml:"api_key" secret:"true" doc:"encoded key, or ID:KEY; ${file:/path} keeps it out of the config"`

	shaped  bool
	target  *expr.Program // of Index or DataStream; nil if this is a fixed name
	routing *expr.Program // nil if the option is not set
}

const actionCreate, idRecord, idNone = "create", "record", "none"

// DefaultOptions returns options that create documents with the ids of their records.
func DefaultOptions() *Options {
	return &Options{Options: httpsink.DefaultOptions(), Documents: DefaultDocuments()}
}

// DefaultDocuments returns options that create documents with the ids of their records.
func DefaultDocuments() Documents { return Documents{Action: actionCreate, ID: idRecord} }

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "elasticsearch", DefaultOptions, New)
}

// New returns a sink. It does not connect.
func New(o Options, h stream.Host) (*httpsink.Sink, error) {
	if err := cmp.Or(o.Documents.Check(), o.CheckKey(&o.Options)); err != nil {
		return nil, err
	}
	codec, err := o.Codec()
	if err != nil {
		return nil, err
	}
	return httpsink.New(o.Options, codec, h)
}

// Validate returns an error for an invalid option. It also reads the certificate file that tls.ca
// names.
func (o *Options) Validate() error {
	return cmp.Or(httpsink.Validate(&o.Options, &o.Documents), o.CheckKey(&o.Options))
}

// FromEnvironment implements stream.EnvironmentUser. It returns a line of text for each URL in the
// option endpoints that is reached through a proxy.
func (o *Options) FromEnvironment() []string { return o.Environment(o.format()) }

// name returns the value of DataStream or, if this is empty, of Index. key is the key of this
// option in the config. isExpression reports whether text is an expression instead of a fixed name.
func (d *Documents) name() (key string, text expr.Text, isExpression bool) {
	key, text = "index", d.Index
	if d.DataStream != "" {
		key, text = "data_stream", d.DataStream
	}
	return key, text, strings.ContainsAny(string(text), `"'()[]{}$`+"` ")
}

// Check returns a [stream.OptionError] for an invalid option.
func (d *Documents) Check() error {
	if err := stream.CheckEnums(d); err != nil {
		return err
	}
	if d.Index != "" && d.DataStream != "" {
		return stream.OptionErrorf("data_stream", "index and data_stream exclude each other; "+
			"remove one")
	}
	key, name, isExpression := d.name()
	switch {
	case d.DataStream != "" && d.Action != actionCreate:
		return stream.OptionErrorf("action", "documents of a data stream cannot be overwritten; "+
			"write action: create")
	case d.IDField != "" && d.Action == actionCreate:
		return stream.OptionErrorf("id_field", "with action: create a repeated document is "+
			"refused like a different one with the same id; write action: index")
	case !isExpression && name != "":
		if reason := checkName(string(name)); reason != "" {
			return stream.OptionErrorf(key, "%q %s; for the value of a field write (%s)", name,
				reason, name)
		}
	}
	return nil
}

// maxName is the maximum length of an index name in bytes.
const maxName = 255

// checkName returns the reason why name is invalid as the name of an index or data stream. It
// returns "" if name is valid.
func checkName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return "is longer than 255 bytes"
	case strings.ContainsAny(name, `\/*?"<>| ,#:`) || name != strings.ToLower(name):
		return `is not an index name, which has no capital letters, spaces or any of \/*?"<>|,#:`
	case strings.ContainsAny(name[:1], "-_+") || name == "." || name == "..":
		return "is not an index name; it must not begin with -, _ or +"
	}
	return ""
}

// CheckKey returns an error if api_key is not valid in a header or conflicts with other options.
func (d *Documents) CheckKey(o *httpsink.Options) error {
	if d.APIKey == "" {
		return nil
	}
	if o.HasAuthorization() {
		return stream.OptionErrorf("api_key", "endpoints, basic, bearer, bearer_file or headers "+
			"have another authorization; remove one")
	}
	if err := httpaccess.CheckToken(d.APIKey); err != nil {
		return stream.OptionErrorf("api_key", "%w", err)
	}
	return nil
}

// Shape implements stream.Shaper. It compiles the expressions.
func (d *Documents) Shape(in stream.Schema) (stream.Schema, error) {
	d.target, d.shaped = nil, true
	var err error
	if key, text, isExpression := d.name(); isExpression {
		if d.target, err = text.Compile(key, in); err != nil {
			return in, err
		}
	}
	d.routing, err = d.Routing.Compile("routing", in)
	return in, err
}

// filterPath lists the parts of a response that bulkErrors reads.
const filterPath = "errors,items.*.status,items.*.error.type,items.*.error.reason"

// format returns the properties that are the same for all bulk requests, such as the path and
// headers.
func (d *Documents) format() httpsink.Format {
	f := httpsink.Format{
		ContentType: "application/x-ndjson", Path: "/_bulk", Keyed: true,
		WholeResponse: maxBulkResponse, Query: url.Values{"filter_path": {filterPath}},
	}
	if d.Pipeline != "" {
		f.Query.Set("pipeline", d.Pipeline)
	}
	if key := d.APIKey; key != "" {
		if strings.Contains(key, ":") {
			key = base64.StdEncoding.EncodeToString([]byte(key))
		}
		f.Header = map[string]string{"Authorization": "ApiKey " + key}
	}
	return f
}
