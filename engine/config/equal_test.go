package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/penstock-io/penstock/stream"
)

// pattern is an option that can be read from text, and not written as text.
type pattern struct{ source string }

func (p *pattern) UnmarshalText(text []byte) error {
	p.source = string(text)
	return nil
}

// TestSameValue checks which differences between options count.
func TestSameValue(t *testing.T) {
	type inner struct {
		Wait *time.Duration `yaml:"wait"`
		Size stream.Size    `yaml:"size"`
	}
	type options struct {
		Token  string            `yaml:"token" secret:"true"`
		URL    string            `yaml:"url"`
		Number int               `yaml:"number" secret:"true"`
		List   []inner           `yaml:"list"`
		Labels map[string]string `yaml:"labels"`

		compiled int // derived from the others
	}
	type own struct{ Made func() } // options for programs only
	made := &own{Made: func() {}}
	type rule struct {
		Pattern pattern `yaml:"pattern"`
	}
	second := time.Second
	base := func(change func(*options)) *options {
		o := &options{Token: "a", URL: "http://u:p@h/", Number: 1, List: []inner{{Wait: &second}},
			Labels: map[string]string{"a": "b"}}
		change(o)
		return o
	}
	for name, c := range map[string]struct {
		change func(*options)
		want   bool
	}{
		"nothing":             {func(*options) {}, true},
		"derived":             {func(o *options) { o.compiled = 1 }, true},
		"secret":              {func(o *options) { o.Token = "b" }, false},
		"secret number":       {func(o *options) { o.Number = 2 }, false},
		"password in a URL":   {func(o *options) { o.URL = "http://u:q@h/" }, false},
		"value of a map":      {func(o *options) { o.Labels = map[string]string{"a": "c"} }, false},
		"size":                {func(o *options) { o.List[0].Size = 1 }, false},
		"another pointer":     {func(o *options) { s := second; o.List[0].Wait = &s }, true},
		"missing pointer":     {func(o *options) { o.List[0].Wait = nil }, false},
		"items":               {func(o *options) { o.List = append(o.List, o.List[0]) }, false},
		"no items, and a map": {func(o *options) { o.List, o.Labels = nil, nil }, false},
	} {
		before := reflect.ValueOf(base(func(*options) {}))
		if got := sameValue(before, reflect.ValueOf(base(c.change))); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		a, b any
		want bool
	}{
		"empty list and none":        {options{List: []inner{}}, options{}, true},
		"types":                      {inner{}, options{}, false},
		"no options":                 {nil, nil, true},
		"options and none":           {&inner{}, nil, false},
		"options of a program":       {&own{}, &own{}, true},
		"other options of a program": {&own{}, made, false},
		"the same pointer":           {made, made, true},
		"pattern":                    {rule{pattern{"a"}}, rule{pattern{"a"}}, true},
		"another pattern":            {rule{pattern{"a"}}, rule{pattern{"b"}}, false},
	} {
		if got := sameValue(reflect.ValueOf(c.a), reflect.ValueOf(c.b)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
