// Package clickhouse implements the sink that inserts batches into a ClickHouse table over its HTTP
// interface.
package clickhouse

import (
	"cmp"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the sink.
type Options struct {
	httpsink.Options
	Insert
}

// Insert has the options that are specific to ClickHouse.
type Insert struct {
	Database    string            `yaml:"database" doc:"database; default: that of the user"`
	Table       string            `yaml:"table" doc:"name of the table"`
	Format      string            `yaml:"format" enum:"JSONEachRow,JSONAsObject,JSONAsString,LineAsString,CSV,TSV" doc:"format of the rows"`
	AsyncInsert bool              `yaml:"async_insert" doc:"let the server collect the rows of several batches before it stores them"`
	Deduplicate bool              `yaml:"deduplicate" doc:"send a key of the batch as insert_deduplication_token"`
	Settings    map[string]string `yaml:"settings" doc:"settings of the insert, such as input_format_skip_unknown_fields: 1"`
}

// DefaultOptions returns options that insert JSON objects.
func DefaultOptions() *Options {
	return &Options{Options: httpsink.DefaultOptions(), Insert: DefaultInsert()}
}

// DefaultInsert returns options that insert JSON objects. The table is not set.
func DefaultInsert() Insert { return Insert{Format: "JSONEachRow", Deduplicate: true} }

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "clickhouse", DefaultOptions, New)
}

// New returns a sink. It does not connect.
func New(o Options, h stream.Host) (*httpsink.Sink, error) {
	if err := cmp.Or(o.Insert.Check(), CheckEndpoints(o.Endpoints)); err != nil {
		return nil, err
	}
	return httpsink.New(o.Options, o.Codec(), h)
}

// Validate returns an error for an invalid option. It also reads the certificate file that tls.ca
// names.
func (o *Options) Validate() error {
	return cmp.Or(httpsink.Validate(&o.Options, &o.Insert), CheckEndpoints(o.Endpoints))
}

// CheckEndpoints returns an error if the URL of an endpoint has a query parameter that only the
// sink may set, such as async_insert.
func CheckEndpoints(endpoints []httpsink.Endpoint) error {
	for i, endpoint := range endpoints {
		u, err := url.Parse(endpoint.URL + endpoint.Path)
		if err != nil {
			return nil // the common options report it
		}
		for _, name := range slices.Sorted(maps.Keys(u.Query())) {
			if reason := ownSettings[strings.ToLower(name)]; reason != "" {
				return stream.OptionErrorf("endpoints", "endpoint %d sets %s; %s", i+1,
					strings.ToLower(name), reason)
			}
		}
	}
	return nil
}

// FromEnvironment implements stream.EnvironmentUser. It returns a line of text for each endpoint
// that is reached through a proxy.
func (o *Options) FromEnvironment() []string { return o.Environment(o.Codec().Format()) }

const reasonToWait = "a batch would count as delivered before it is stored; remove it"

// ownSettings has the query parameters that users must not set: most have an option of their own,
// and the others must keep the sink's value. An endpoint with one of them in its URL is invalid,
// and so is an option `settings` with one of them. The error contains the text in this map, which
// tells the user what to do instead.
var ownSettings = map[string]string{
	"query":                      "the sink writes the statement; see table and format",
	"database":                   "write the option database",
	"insert_deduplication_token": "write the option deduplicate",
	"async_insert":               "write the option async_insert",
	"wait_for_async_insert":      reasonToWait,
	"wait_end_of_query":          reasonToWait,
}

var settingForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// Check returns a [stream.OptionError] for an invalid option.
func (t *Insert) Check() error {
	if err := stream.CheckEnums(t); err != nil {
		return err
	}
	if t.Table == "" {
		return stream.OptionErrorf("table", "is missing; name the table for the rows")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Settings)) {
		switch reason := ownSettings[strings.ToLower(name)]; {
		case reason != "":
			return stream.OptionErrorf("settings."+name, "%s", reason)
		case !settingForm.MatchString(name):
			return stream.OptionErrorf("settings."+name, "a setting's name is letters, digits "+
				"and _, and does not begin with a digit")
		}
	}
	return nil
}

// statement returns the INSERT statement, which is sent in the query of the URL.
func (t *Insert) statement() string {
	name := quoteName(t.Table)
	if t.Database != "" {
		name = quoteName(t.Database) + "." + name
	}
	return "INSERT INTO " + name + " FORMAT " + t.Format
}

func quoteName(name string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

// isJSON reports whether rows are sent as JSON objects.
func (t *Insert) isJSON() bool { return strings.HasPrefix(t.Format, "JSON") }

// Codec returns the codec for INSERT requests, which encodes batches and evaluates responses.
func (t *Insert) Codec() httpsink.Codec { return codec{t} }

type codec struct{ *Insert }

// Format implements httpsink.Codec. It returns the query parameters and headers of all requests.
func (c codec) Format() httpsink.Format {
	f := httpsink.Format{
		ContentType: "text/plain", Keyed: true, Raw: !c.isJSON(),
		Query: url.Values{
			"query":             {c.statement()},
			"wait_end_of_query": {"1"}, // so that a late failure does not get the status 200
			// also without the option async_insert, because the user's profile may set it
			"wait_for_async_insert":  {"1"},
			"date_time_input_format": {"best_effort"},
		},
	}
	if c.Deduplicate {
		f.KeyParameter = "insert_deduplication_token"
	}
	if c.AsyncInsert {
		f.Query.Set("async_insert", "1")
	}
	for name, value := range c.Settings {
		f.Query.Set(name, value)
	}
	return f
}

// Append implements httpsink.Codec. It appends the rows: JSON objects, or the original bytes of the
// records.
func (c codec) Append(dst []byte, b *stream.Batch, _ func(int, error)) []byte {
	if c.isJSON() {
		return ndjson.Append(dst, b)
	}
	return b.AppendRaw(dst)
}
