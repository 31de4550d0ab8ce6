package journald

import (
	"strings"
	"testing"
)

func TestBadOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`units[1]: is "", want a name`: func(o *Options) {
			o.Units = []string{"a", ""}
		},
		`identifiers[0]: is "a\n", want a name`: func(o *Options) {
			o.Identifiers = []string{"a\n"}
		},
		`match[0]: is "uid=1", want FIELD=VALUE such as`: func(o *Options) {
			o.Match = []string{"uid=1"}
		},
		`match[0]: is "_UID", want FIELD=VALUE`: func(o *Options) {
			o.Match = []string{"_UID"}
		},
		`priority: is "error", want one of emerg, alert`: func(o *Options) { o.Priority = "error" },
		`command: is empty; write [journalctl]`:          func(o *Options) { o.Command = nil },
		`max_record: is 1B, want 1KiB to 64MiB`:          func(o *Options) { o.MaxRecord = 1 },
		`start: is "now", want earliest or latest`:       func(o *Options) { o.Start = "now" },
	} {
		o := DefaultOptions()
		change(o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := DefaultOptions().Validate(); err != nil {
		t.Error(err)
	}
}
