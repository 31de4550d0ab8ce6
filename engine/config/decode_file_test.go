package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

type tuning struct {
	Level float64       `yaml:"level" min:"0.5" max:"2"`
	Count uint          `yaml:"count" max:"9"`
	Wait  time.Duration `yaml:"wait" min:"1ms" max:"1s"`
	Ports ports         `yaml:"ports"`
	Times times         `yaml:"times"`
}

// times may be written as a list or as a single text.
type times struct {
	List []time.Duration `yaml:",list"`
	Of   string
}

func (w *times) UnmarshalText(text []byte) error {
	w.Of = string(text)
	return nil
}

func (w times) MarshalText() ([]byte, error) { return []byte(w.Of), nil }

type ports struct {
	From int   `yaml:"from"`
	List []int `yaml:",list" min:"1"`
}

var tuningKind = Kind{Noun: "tuning", Least: "`level:`"}

func TestDecode(t *testing.T) {
	got := tuning{Count: 3}
	err := Decode("t.yaml", []byte("level: 0.5\nwait: 1s\nports: [1, 80]\n"), tuningKind, &got)
	want := tuning{Level: 0.5, Count: 3, Wait: time.Second, Ports: ports{List: []int{1, 80}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for text, want := range map[string]times{
		"times: [1s, 2m]": {List: []time.Duration{time.Second, 2 * time.Minute}},
		"times: a + b":    {Of: "a + b"},
	} {
		got = tuning{}
		err := Decode("t.yaml", []byte(text), tuningKind, &got)
		if err != nil || !reflect.DeepEqual(got.Times, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got.Times, err, want)
		}
	}
	got = tuning{}
	if err := Decode("t.yaml", []byte("ports: {from: 7}"), tuningKind, &got); err != nil ||
		got.Ports.From != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "t.yaml: is empty; a tuning has at least `level:`",
		"level: 0.4":         `t.yaml:1:8: tuning.level: "0.4" is less than 0.5`,
		"level: 2.5":         `t.yaml:1:8: tuning.level: "2.5" is more than 2`,
		"count: 10":          `t.yaml:1:8: tuning.count: "10" is more than 9`,
		"wait: 0s":           `t.yaml:1:7: tuning.wait: "0s" is less than 1ms`,
		"wait: 2s":           `t.yaml:1:7: tuning.wait: "2s" is more than 1s`,
		"ports: [8, 0]":      `t.yaml:1:12: tuning.ports[1]: "0" is less than 1`,
		"times: [1s, x]":     `t.yaml:1:13: tuning.times[1]: "x" is not a duration`,
		"ports: {List: [1]}": `t.yaml:1:9: tuning.ports has no option "List"`,
	} {
		err := Decode("t.yaml", []byte(text), tuningKind, &tuning{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if err := DecodeFile("no/such.yaml", tuningKind, &tuning{}); err == nil ||
		!strings.HasPrefix(err.Error(), "no/such.yaml: cannot read the tuning: ") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestDescribeBoundsAndLists checks that a plan shows a struct with a field tagged `,list` as a
// list. It also checks that the schema has such lists and the bounds of numbers.
func TestDescribeBoundsAndLists(t *testing.T) {
	schema := string(appendJSON(nil,
		describe(reflect.ValueOf(tuning{Level: 1, Ports: ports{List: []int{5}}}), false)))
	if !strings.Contains(schema, `"ports":[5]`) {
		t.Errorf("a plan shows %s", schema)
	}
	text, err := schemaOf(reflect.ValueOf(tuning{}), option{}).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"minimum":0.5,"maximum":2`, `"minimum":0,"maximum":9`,
		`"type":"array"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the schema has no %s: %s", want, text)
		}
	}
}
