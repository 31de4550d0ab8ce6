package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-io/penstock/stream"
)

// envOptions are the options of a component that refuses variables with values.
type envOptions struct {
	Env []string `yaml:"env"`
}

func (o *envOptions) Validate() error {
	var errs []error
	for i, e := range o.Env {
		if name, value, valued := strings.Cut(e, "="); valued {
			errs = append(errs, &stream.OptionError{Key: fmt.Sprintf("env[%d]", i), Secret: value,
				Err: fmt.Errorf("%s has a value", name)})
		}
	}
	return errors.Join(errs...)
}

// TestSecretForms checks that messages mask secrets in every form, and only them.
func TestSecretForms(t *testing.T) {
	components := append(testComponents(), stream.Component{Role: stream.SinkRole, Name: "run",
		New: noComponent, Options: func() any { return &envOptions{} }})
	for name, c := range map[string]struct {
		sink string
		want string // a part of the message
	}{
		"the value is the name of an option": {`http: {endpoints: [a], auth: headers}`,
			"there is: accept, endpoints, headers, password"},
		"the value is the name of a component": {`http: {endpoints: [a], auth: http}`,
			`http has no option "auth"`},
		"a plain value":        {`run: {env: [A=s3cret, B=s3cret]}`, "env: [A=***, B=***]"},
		"a value in quotes":    {`run: {env: ["A=s3cret"]}`, `env: ["A=***"]`},
		"an escape":            {`run: {env: ["A=x\x33s3cret"]}`, "env: [***]"},
		"a long escape":        {`run: {env: ["A=\u0073s3cret"]}`, "env: [***]"},
		"single quotes":        {`run: {env: ['A=it''s s3cret']}`, "env: [***]"},
		"several lines":        {"run: {env: [\"A=a\n\n      s3cret\"]}", "env: [***"},
		"short words":          {`run: {env: ["A=s3cret 12 ab"]}`, `env: ["A=***"]`},
		"an anchor":            {`run: {env: [&x "A=x\x33s3cret"]}`, "env: [&x ***]"},
		"a tag":                {`run: {env: [!!str "A=x\x33s3cret"]}`, "env: [!!str ***]"},
		"an equal value":       {`http: {password: "", x: ""}`, `x: ""`},
		"an escape in the key": {`http: {"pass\x77ord": "\u0073s3cret", x: 1}`, `: ***, x: 1`},
	} {
		text := "pipelines:\n  a:\n    source: {spool_dir: {path: p}}\n    sink: {" + c.sink + "}\n"
		_, err := Parse("f.yaml", []byte(text), LoadOptions{Components: components, Env: noEnv})
		if err == nil || strings.Contains(err.Error(), "s3cret") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the message has the secret, or not %q:\n%v", name, c.want, err)
		}
	}
}
