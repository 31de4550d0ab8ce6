package http

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/penstock-io/penstock/stream"
)

// ElasticsearchOptions are those of `body: elasticsearch_bulk`, for Elasticsearch, OpenSearch and
// what speaks as they do.
type ElasticsearchOptions struct {
	Index   string `yaml:"index" doc:"index or data stream; without it the endpoint's path names it, as in /logs/_bulk"`
	Action  string `yaml:"action" enum:"create,index" doc:"create never overwrites a document; index does"`
	ID      string `yaml:"id" enum:"record,none" doc:"record: a record's id, so that a repetition is found; none: the store makes one"`
	IDField string `yaml:"id_field" doc:"field whose value is the document's id; records without it have their own"`
}

// LokiOptions are those of `body: loki`.
type LokiOptions struct {
	Labels      map[string]string `yaml:"labels" doc:"labels of every stream; {job: penstock} where a record has none at all"`
	LabelFields []string          `yaml:"label_fields" doc:"fields that become labels too: few, of few values"`
	Timestamp   string            `yaml:"timestamp" doc:"field that holds the record's time; without it, when it was sent first"`
	Line        string            `yaml:"line" enum:"auto,json,raw" doc:"auto: parsed records as JSON, others as they were read"`
}

// ClickHouseOptions are those of `body: clickhouse`.
type ClickHouseOptions struct {
	Database string `yaml:"database" doc:"the user's default where it is left out"`
	Table    string `yaml:"table" doc:"into which"`
}

const (
	actionCreate, actionIndex   = "create", "index"
	idRecord, idNone            = "record", "none"
	lineAuto, lineJSON, lineRaw = "auto", "json", "raw"
)

func defaultElasticsearch() ElasticsearchOptions {
	return ElasticsearchOptions{Action: actionCreate, ID: idRecord}
}

func defaultLoki() LokiOptions { return LokiOptions{Line: lineAuto} }

func wrongOption(key, format string, args ...any) error {
	return &stream.OptionError{Key: key, Err: fmt.Errorf(format, args...)}
}

// validateStore checks the options of the body's store, and refuses those of another one: they
// would do nothing.
func (o *Options) validateStore() error {
	e, l, c := &o.Elasticsearch, &o.Loki, &o.ClickHouse
	switch {
	case o.Body != ElasticsearchBulk && *e != defaultElasticsearch() && *e != (ElasticsearchOptions{}):
		return wrongOption("elasticsearch", "belongs to body: elasticsearch_bulk, and body is %s", o.Body)
	case o.Body != Loki && (len(l.Labels) > 0 || len(l.LabelFields) > 0 || l.Timestamp != ""):
		return wrongOption("loki", "belongs to body: loki, and body is %s", o.Body)
	case o.Body != ClickHouse && *c != ClickHouseOptions{}:
		return wrongOption("clickhouse", "belongs to body: clickhouse, and body is %s", o.Body)
	}
	switch o.Body {
	case ElasticsearchBulk:
		return e.validate()
	case Loki:
		return l.validate()
	case ClickHouse:
		if c.Table == "" {
			return wrongOption("clickhouse.table", "is missing; name the table into which the rows go")
		}
	}
	return nil
}

func (e *ElasticsearchOptions) validate() error {
	switch {
	case e.Action != actionCreate && e.Action != actionIndex:
		return wrongOption("elasticsearch.action", "%q is not one of create, index", e.Action)
	case e.ID != idRecord && e.ID != idNone:
		return wrongOption("elasticsearch.id", "%q is not one of record, none; a field's name belongs to id_field", e.ID)
	case e.IDField != "" && e.Action == actionCreate:
		return wrongOption("elasticsearch.id_field",
			"with action: create a repetition looks like another document of the same id; write action: index")
	case strings.ContainsAny(e.Index, `\/*?"<>| ,#`) || e.Index != strings.ToLower(e.Index):
		return wrongOption("elasticsearch.index", `%q is no index name: no capital letters, spaces or any of \/*?"<>|,#`, e.Index)
	}
	return nil
}

var labelForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// maxLabels is how many labels a stream may have; Loki itself takes 15 by default.
const maxLabels = 15

func (l *LokiOptions) validate() error {
	for _, name := range slices.Sorted(maps.Keys(l.Labels)) {
		if !labelForm.MatchString(name) {
			return wrongOption("loki.labels."+name, "a label's name is letters, digits and _, and does not begin with a digit")
		}
	}
	seen := make(map[string]string)
	for _, field := range l.LabelFields {
		name := labelOf(field)
		if _, twice := l.Labels[name]; twice || field == "" || seen[name] != "" {
			return wrongOption("loki.label_fields", "%q gives the label %q, which is there already", field, name)
		}
		seen[name] = field
	}
	if n := len(l.Labels) + len(l.LabelFields); n > maxLabels {
		return wrongOption("loki.label_fields", "%d labels are more than the %d that a stream may have", n, maxLabels)
	}
	if l.Line != lineAuto && l.Line != lineJSON && l.Line != lineRaw {
		return wrongOption("loki.line", "%q is not one of auto, json, raw", l.Line)
	}
	return nil
}

// labelOf makes a label's name of a field's.
func labelOf(field string) string {
	name := []byte(field)
	for i, c := range name {
		if !labelForm.Match([]byte{c}) && (c < '0' || c > '9' || i == 0) {
			name[i] = '_'
		}
	}
	return string(name)
}

// aim adds to an endpoint's URL what its store wants: the path, where it has none, and the query.
// What the URL already says stays.
func (o *Options) aim(u *url.URL) {
	q := u.Query()
	put := func(key, value string) {
		if !q.Has(key) {
			q.Set(key, value)
		}
	}
	switch o.Body {
	case ElasticsearchBulk:
		if u.Path == "/" {
			u.Path = "/_bulk"
		}
		put("filter_path", "errors,items.*.status,items.*.error.type,items.*.error.reason")
	case Loki:
		if u.Path == "/" {
			u.Path = "/loki/api/v1/push"
		}
		return
	case ClickHouse:
		put("query", o.ClickHouse.insert())
		put("wait_end_of_query", "1") // else a failure after the first rows comes behind a 200
		put("date_time_input_format", "best_effort")
	default:
		return
	}
	u.RawQuery = q.Encode()
}

// insert is the statement that stands in the query; the names are quoted, whatever they hold.
func (c *ClickHouseOptions) insert() string {
	name := quoteName(c.Table)
	if c.Database != "" {
		name = quoteName(c.Database) + "." + name
	}
	return "INSERT INTO " + name + " FORMAT JSONEachRow"
}

func quoteName(name string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`").Replace(name) + "`"
}

// validateAccess checks who the sink says it is, and how it gets there.
func (o *Options) validateAccess() error {
	given := 0
	for _, is := range []bool{o.Basic != nil, o.Bearer != "", o.BearerFile != ""} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return wrongOption("bearer", "basic, bearer and bearer_file exclude each other; keep one of them")
	case o.Basic != nil && o.Basic.User == "":
		return wrongOption("basic.user", "is missing")
	case o.Basic != nil && strings.Contains(o.Basic.User, ":"):
		return wrongOption("basic.user", "holds a colon, which basic auth cannot carry")
	}
	if given > 0 {
		for name := range o.Headers {
			if strings.EqualFold(name, "Authorization") {
				return wrongOption("headers."+name, "basic, bearer or bearer_file sets this header already; keep one of them")
			}
		}
	}
	if err := checkToken(o.Bearer); err != nil {
		return &stream.OptionError{Key: "bearer", Err: err}
	}
	if (o.TLS.Cert == "") != (o.TLS.Key == "") {
		return wrongOption("tls", "cert and key belong together: give both, or neither")
	}
	if err := o.checkTLS(); err != nil {
		return err
	}
	return o.validateProxy()
}

func (o *Options) checkTLS() error {
	if o.TLS == (TLS{}) {
		return nil
	}
	for _, e := range o.Endpoints {
		if strings.HasPrefix(strings.ToLower(e), "https:") {
			return nil
		}
	}
	return wrongOption("tls", "no endpoint is https, so nothing would be encrypted; write https:// or leave tls out")
}

// checkToken never shows the token.
func checkToken(token string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c >= 0x7F {
			return errors.New("holds a space, control or non-ASCII character, which no token may; is it another file?")
		}
	}
	return nil
}
