package config

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// The components of these tests have options of all types that the loader supports.

type spoolOptions struct {
	Path      string        `yaml:"path" path:"true" required:"true" doc:"folder whose files are read"`
	Include   []string      `yaml:"include" path:"glob" doc:"names that are read"`
	Order     string        `yaml:"order" enum:"oldest,name" doc:"which file comes first"`
	Recursive bool          `yaml:"recursive" doc:"folders beneath too"`
	Settle    time.Duration `yaml:"settle" doc:"how long a file must be quiet"`
	MaxRecord stream.Size   `yaml:"max_record" doc:"longest record"`
	Level     slog.Level    `yaml:"level" doc:"a type of another package that reads text"`
}

type rotateOptions struct {
	Bytes stream.Size `yaml:"bytes" doc:"size of a file"`
	Keep  uint8       `yaml:"keep" doc:"how many old files stay"`
}

type fileOptions struct {
	Path   string         `yaml:"path" path:"true" alone:"true" required:"true" doc:"file that is written"`
	Format string         `yaml:"format" enum:"ndjson,raw" doc:"what a record looks like"`
	Rotate *rotateOptions `yaml:"rotate" doc:"when to begin a new file"`
}

type tlsOptions struct {
	CA    []string `yaml:"ca" path:"true" doc:"files with certificates"`
	Hosts struct {
		Allow []string `yaml:"allow"`
	} `yaml:"hosts"`
}

type httpOptions struct {
	Endpoints []string          `yaml:"endpoints" required:"true" doc:"URLs, each a worker"`
	Headers   map[string]string `yaml:"headers" secret:"true" doc:"sent with every request"`
	Password  string            `yaml:"password" secret:"true"`
	User      string            `yaml:"user"`
	Ratio     float64           `yaml:"ratio"`
	Tries     int               `yaml:"tries"`
	Weights   map[string]int    `yaml:"weights"`
	TLS       tlsOptions        `yaml:"tls"`
	Accept    string            `yaml:"accept" expr:"true"`
}

func (o *httpOptions) Validate() error {
	var errs []error
	for i, e := range o.Endpoints {
		if !strings.HasPrefix(e, "http://") && !strings.HasPrefix(e, "https://") {
			err := fmt.Errorf("%q is not an http or https URL", e)
			errs = append(errs, &stream.OptionError{Key: fmt.Sprintf("endpoints[%d]", i), Err: err})
		}
	}
	if len(o.TLS.Hosts.Allow) == 1 {
		errs = append(errs,
			&stream.OptionError{Key: "tls.hosts.allow", Err: errors.New("one host alone makes " +
				"no sense")})
	}
	if o.User != "" && o.Password == "" {
		errs = append(errs,
			&stream.OptionError{Key: "password", Err: errors.New("is missing beside user")})
	}
	if o.Tries < 0 {
		errs = append(errs, errors.New("tries and ratio do not fit together"))
	}
	return errors.Join(errs...)
}

// whereOptions are the options of a component that may be a single text: `where: status >= 400`.
type whereOptions struct {
	Expr    string `yaml:"expr"`
	OnError string `yaml:"on_error" enum:"dead_letter,pass,drop"`
}

func (o *whereOptions) UnmarshalText(text []byte) error {
	if strings.Contains(string(text), "===") {
		return errors.New("=== is no operator; write ==")
	}
	o.Expr = string(text)
	return nil
}

func (*whereOptions) Expression() {}

func (*whereOptions) Otherwise(lists [][]any) any {
	var all []string
	for _, list := range lists {
		for _, o := range list {
			all = append(all, "not "+o.(*whereOptions).Expr)
		}
	}
	return &whereOptions{Expr: strings.Join(all, " | "), OnError: "dead_letter"}
}

func noComponent(any, stream.Host) (any, error) { return nil, errors.New("not made to run") }

func testComponents() []stream.Component {
	return []stream.Component{
		{Role: stream.SourceRole, Name: "spool_dir", New: noComponent, Options: func() any {
			return &spoolOptions{Order: "oldest", Settle: time.Second, MaxRecord: 1 << 20}
		}},
		{Role: stream.ProcessorRole, Name: "where", New: noComponent, Options: func() any {
			return &whereOptions{OnError: "dead_letter"}
		}},
		{Role: stream.ProcessorRole, Name: "set", New: noComponent, Options: func() any {
			return &map[string]string{}
		}},
		{Role: stream.ProcessorRole, Name: "drop_fields", New: noComponent, Options: func() any {
			return &[]string{}
		}},
		{Role: stream.SinkRole, Name: "file", New: noComponent, Options: func() any {
			return &fileOptions{Format: "ndjson"}
		}},
		{Role: stream.SinkRole, Name: "http", New: noComponent, Options: func() any {
			return &httpOptions{Ratio: 0.5, Tries: 3}
		}},
		{Role: stream.SinkRole, Name: "drop", New: noComponent, Options: func() any {
			return &struct{}{}
		}},
		{Role: stream.SinkRole, Name: "null", New: noComponent},
	}
}
