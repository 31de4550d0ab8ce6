package stream

import (
	"errors"
	"strings"
	"testing"
)

type reading struct {
	Start string `yaml:"start" enum:"beginning,end"`
}

type choices struct {
	reading
	Mode  string `yaml:"mode,omitempty" enum:"append,upsert,none"`
	Other string `yaml:"other" enum:"a,b"`
	Text  string `yaml:"text"`
	Words []string
}

// TestCheckEnums checks that every wrong option is reported with the allowed words, also in
// embedded structs, and that only optional ones may be empty.
func TestCheckEnums(t *testing.T) {
	o := choices{reading: reading{Start: "end"}, Mode: "upsert"}
	if err := CheckEnums(&o, "other"); err != nil {
		t.Error(err)
	}
	o.Start, o.Mode, o.Text = "now", "", "anything"
	err := CheckEnums(&o)
	want := "start: is \"now\", want beginning or end\nmode: is \"\", want append, " +
		"upsert or none\nother: is \"\", want a or b"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	if wrong, ok := errors.AsType[*OptionError](err); !ok || wrong.Key != "start" ||
		strings.Contains(wrong.Err.Error(), "start") {
		t.Errorf("%#v", wrong)
	}
}
