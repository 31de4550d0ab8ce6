// Package loki implements the sink that pushes batches to Grafana Loki and compatible stores.
package loki

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"github.com/penstock-io/penstock/engine/kit/httpaccess"
	"github.com/penstock-io/penstock/engine/kit/httpsink"
	"github.com/penstock-io/penstock/stream"
)

// Options are the options of the sink.
type Options struct {
	httpsink.Options
	Streams
}

// Streams has the options that are specific to Loki. A stream consists of records with the same
// labels.
type Streams struct {
	Labels         map[string]string `yaml:"labels" doc:"labels of every stream; {job: penstock} if a record has none at all"`
	LabelFields    []string          `yaml:"label_fields" doc:"fields that become labels, too; choose few fields with few values"`
	MetadataFields []string          `yaml:"metadata_fields" doc:"fields that become structured metadata of the line"`
	Timestamp      string            `yaml:"timestamp" doc:"field with the record's time; without it, the time of reading"`
	Line           string            `yaml:"line" enum:"auto,json,raw" doc:"auto: records with fields as JSON, others as they were read"`
	Tenant         string            `yaml:"tenant" doc:"tenant of all records, in the header X-Scope-OrgID"`
}

const (
	lineAuto, lineRaw = "auto", "raw"
	headerTenant      = "X-Scope-OrgID"
)

// DefaultOptions returns options without labels.
func DefaultOptions() *Options {
	return &Options{Options: httpsink.DefaultOptions(), Streams: DefaultStreams()}
}

// DefaultStreams returns options without labels.
func DefaultStreams() Streams { return Streams{Line: lineAuto} }

// Component returns the sink's entry in the list of components.
func Component() stream.Component {
	return stream.NewComponent(stream.SinkRole, "loki", DefaultOptions, New)
}

// New returns a sink. It does not connect.
func New(o Options, h stream.Host) (*httpsink.Sink, error) {
	if err := o.Streams.Check(); err != nil {
		return nil, err
	}
	return httpsink.New(o.Options, o.Streams.Codec(), h)
}

// Validate returns an error for an invalid option. It also reads the file of tls.ca.
func (o *Options) Validate() error { return httpsink.Validate(&o.Options, &o.Streams) }

// FromEnvironment implements stream.EnvironmentUser. It returns a line of text for each URL in the
// option endpoints that is reached through a proxy.
func (o *Options) FromEnvironment() []string { return o.Environment(o.Codec().Format()) }

var labelForm = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// maxLabels is the maximum number of labels of a stream, as in Loki's default configuration.
const maxLabels = 15

// Check returns a [stream.OptionError] for an invalid option.
func (l *Streams) Check() error {
	if err := stream.CheckEnums(l); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(l.Labels)) {
		if !labelForm.MatchString(name) {
			return stream.OptionErrorf("labels."+name, "a label's name is letters, digits and _, "+
				"and does not begin with a digit")
		}
	}
	if n := len(l.Labels) + len(l.LabelFields); n > maxLabels {
		return stream.OptionErrorf("label_fields", "%d labels exceed the limit of %d for a stream",
			n, maxLabels)
	}
	err := cmp.Or(checkFields("label_fields", l.LabelFields, l.Labels),
		checkFields("metadata_fields", l.MetadataFields, nil))
	if err != nil {
		return err
	}
	if err := httpaccess.CheckHeader(headerTenant, l.Tenant); err != nil {
		return stream.OptionErrorf("tenant", "%w", err)
	}
	return nil
}

// checkFields returns an error if a field has no name, if two fields give the same label, or if a
// field gives a label that is in labels.
func checkFields(option string, fields []string, labels map[string]string) error {
	seen := make(map[string]string)
	maps.Copy(seen, labels)
	for _, field := range fields {
		name := labelOf(field)
		if _, twice := seen[name]; twice || field == "" {
			return stream.OptionErrorf(option, "%q gives the label %q, which already exists", field,
				name)
		}
		seen[name] = field
	}
	return nil
}

// labelOf converts a field's name to a valid label name.
func labelOf(field string) string {
	name := []byte(field)
	for i, c := range name {
		if !labelForm.Match([]byte{c}) && (c < '0' || c > '9' || i == 0) {
			name[i] = '_'
		}
	}
	return string(name)
}

// Codec returns the codec for push requests, which encodes batches and evaluates responses.
func (l *Streams) Codec() httpsink.Codec { return codec{l} }

type codec struct{ *Streams }

// Format implements httpsink.Codec. It returns the path and headers of push requests.
func (c codec) Format() httpsink.Format {
	f := httpsink.Format{
		ContentType: "application/json", Path: "/loki/api/v1/push", Keyed: true,
	}
	if c.Tenant != "" {
		f.Header = map[string]string{headerTenant: c.Tenant}
	}
	return f
}

// Outcome implements httpsink.Codec. The outcome depends only on the status of the response.
func (c codec) Outcome(_ *stream.Batch, r *httpsink.Response) error { return r.Err }
