package tail_test

import (
	"strings"
	"testing"

	"github.com/penstock-io/penstock/engine/connector/tail"
)

// TestValidate checks that errors name the invalid option. If several options are invalid, the
// error must always name the same one.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		change func(o *tail.Options)
		want   string
	}{
		{func(o *tail.Options) {}, ""},
		{func(o *tail.Options) { o.Include = nil }, "include: is missing: name the files to follow, as globs"},
		{func(o *tail.Options) { o.Include = []string{"a", "b/**"} },
			`include[1]: "b/**" names no files; write b/**/* to have every file there`},
		{func(o *tail.Options) { o.Include = []string{"["} },
			`include[0]: "[" is not a glob; brackets must close, and it may not be empty`},
		{func(o *tail.Options) { o.Exclude = []string{""} },
			`exclude[0]: "" is not a glob; brackets must close, and it may not be empty`},
		{func(o *tail.Options) { o.Include = []string{"*.log*", "/a/*.1.gz"} },
			`include[1]: "/a/*.1.gz" matches only files that exclude skips; ` +
				`write exclude without "*.gz", for example exclude: []`},
		{func(o *tail.Options) {
			o.Include, o.Exclude = []string{"a.log*"}, []string{"a.log?", "/b/a.log*"}
		}, ""},
		{func(o *tail.Options) { o.Include = []string{"a/[!b].log"} },
			`include[0]: "a/[!b].log" has [!, which does not negate a class; write [^`},
		{func(o *tail.Options) { o.Exclude = []string{"{a,b}.log"} },
			`exclude[0]: "{a,b}.log" has alternatives in braces; write a glob for each of them`},
		{func(o *tail.Options) { o.Exclude = []string{"logs/a/"} },
			`exclude[0]: "logs/a/" matches no file; write logs/a/* for the files in the folder`},
		{func(o *tail.Options) { o.Start = "now" }, `start: is "now", want beginning or end`},
		{func(o *tail.Options) { o.Symlinks = "" }, `symlinks: is "", want refuse or follow`},
		{func(o *tail.Options) { o.DeletedBeyond = "x" }, `deleted_beyond: is "x", want keep, drop or stop`},
		{func(o *tail.Options) { o.DeletedMax = -1 }, "deleted_max: is -1B, want 0B or more"},
		{func(o *tail.Options) { o.MaxRecord = 0 }, "max_record: is 0B, want 1B to 1GiB"},
		{func(o *tail.Options) { o.LongRecord = "drop" }, `long_record: is "drop", want cut or dead_letter`},
		{func(o *tail.Options) { o.Compression = "xz" }, `compression: is "xz", want auto, none, gzip or zstd`},
		{func(o *tail.Options) { o.PollMin = 0 }, "poll_min: is 0s, want more than 0"},
		{func(o *tail.Options) { o.PollMax = 1 }, "poll_max: is 1ns, less than poll_min (100ms)"},
		{func(o *tail.Options) { o.OpenFiles = 0 }, "open_files: is 0, want 1 or more"},
		{func(o *tail.Options) { o.PartialWait, o.GoneWait, o.CopyWait, o.Forget = -1, -1, -1, -1 },
			"partial_wait: is -1ns, want 0 or more"},
		{func(o *tail.Options) { o.GoneWait, o.CopyWait, o.Forget = -1, -1, -1 }, "gone_wait: is -1ns, want 0 or more"},
		{func(o *tail.Options) { o.CopyWait, o.Forget = -1, -1 }, "copy_wait: is -1ns, want 0 or more"},
		{func(o *tail.Options) { o.Forget = -1 }, "forget: is -1ns, want 0 or more"},
	} {
		o := tail.Source().Options().(*tail.Options)
		o.Include = []string{"*.log"}
		c.change(o)
		got := ""
		if err := o.Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestReadsFile checks which output files of a sink the source would read.
func TestReadsFile(t *testing.T) {
	for _, c := range []struct {
		include, exclude, file string
		want                   bool
	}{
		{"logs/*.log", "", "logs/out.log", true},
		{"logs/*.log", "out.log", "logs/out.log", false},
		{"logs/*.log", "logs/out.log", "logs/out.log", false},
		{"/logs/*.log", "/logs/**/out.log", "/logs/out.log", false},
		{"/logs/**/*.log", "/logs/**/out.log", "/logs/x/y/out.log", false},
		{"/logs/**/*.log", "**/out.log", "/logs/x/y/out.log", false},
		{"/logs/**/*.log", "/logs/x/**", "/logs/x/y/out.log", false},
		{"/logs/**/*.log", "/logs/*/out.log", "/logs/x/y/out.log", true},
		{"logs/*.log", "**/s/out.log", "logs/out.log", true},
		{"a.log logs/**/*.log", "", "./logs/x/y/out.log", true},
		{"logs/**/*.log", "", "logs/.x/out.log", false},
		{"logs/*", "", "logs/.out.log", false},
		{"logs/*", "", "logs/out.gz", false},
		{"/logs/*.log", "", "/logs/../logs/out.log", true},
		{"logs/*.log", "", "logs/x/out.log", false},
		{"logs/*.log", "", "out.log", false},
		{"*/out.log", "", "../out.log", false},
	} {
		o := tail.Source().Options().(*tail.Options)
		o.Include, o.Exclude = strings.Fields(c.include), append(o.Exclude, strings.Fields(c.exclude)...)
		if got := o.ReadsFile(c.file); got != c.want {
			t.Errorf("%+v: ReadsFile = %v", c, got)
		}
	}
}
