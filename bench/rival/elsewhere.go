package rival

// Share is what a rival reached of the limit that a workload has here, measured elsewhere: on two virtual cores with the same
// kind of input, medians of four rounds, its own limit beside it.
type Share struct {
	Program string
	OfLimit float64
	MBPerS  float64
	Setting string
}

// Elsewhere are the shares by workload, the quickest setting of each program under which it loses nothing when it is killed,
// where there is one.
var Elsewhere = map[string][]Share{
	"w1": {
		{"fluent-bit", .033, 289, "5.1.1"}, {"otelcol", .028, 244, "core 0.155"}, {"syslog-ng", .015, 136, "3.38"},
		{"telegraf", .015, 131, "1.40"}, {"loggie", .012, 106, "2024-04"}, {"rsyslog", .006, 57, "8.2302"}, {"vector", .006, 95, "0.58"},
		{"flume", .004, 37, "1.11, memory channel; 12 MB/s by its file channel"},
	},
	"w2": {
		{"fluent-bit", .066, 262, "5.1.1"}, {"otelcol", .032, 125, "in OTLP JSON"}, {"syslog-ng", .029, 116, "3.38"},
		{"telegraf", .023, 92, "1.40"}, {"rsyslog", .014, 57, "8.2302"}, {"vector", .006, 11, "0.58"},
		{"flume", .003, 11, "file channel; 39 MB/s by its memory channel, which a kill empties"},
	},
	"w3": {
		{"fluent-bit", .082, 207, "filesystem chunks, threaded: off"}, {"syslog-ng", .053, 133, "flow-control, 4 workers"},
		{"otelcol", .045, 114, "no queue"}, {"telegraf", .039, 98, "positions kept on a clean stop only"},
		{"vector", .036, 94, "acknowledgements"}, {"loggie", .025, 63, "parallelism 4"}, {"rsyslog", .009, 23, "disk queue"},
		{"flume", .0004, 1, "file channel, 4 sinks of one event a request"},
	},
	"w4_json": {
		{"fluent-bit", 1.8, 67, "778.435 became 778.4349999999999"}, {"rsyslog", 1.3, 47, "mmjsonparse"},
		{"loggie", 1.1, 40, "key order changes"},
		{"otelcol", .9, 33, "integers become doubles"}, {"telegraf", .7, 26, "nested"}, {"syslog-ng", .7, 25, "numbers become text"},
		{"vector", .4, 14, "its file sink is the limit; keys sorted"},
	},
	"w4_json_http": {{"vector", 1.9, 72, "keys sorted"}, {"fluent-bit", 1.7, 65, "as to a file"}},
	"w4_regex": { // no share: the expression alone was not measured there
		{"fluent-bit", 0, 37, "Onigmo"}, {"syslog-ng", 0, 27, "PCRE"}, {"otelcol", 0, 25, "regex_parser"}, {"loggie", 0, 18, "to a file"},
		{"vector", 0, 8.3, "its file sink is the limit; over HTTP 47"},
	},
	"w5": {
		{"otelcol", .92, 93, "20 consumers, set by hand"}, {"vector", .76, 76, "adaptive"}, {"syslog-ng", .54, 54, "20 workers"},
		{"telegraf", .05, 4.8, "one request at a time"},
	},
	"w5_500ms": {{"vector", .31, 6.2, "adaptive"}},
}

// Fault is what a rival made of kills or of a failing receiver, measured elsewhere.
type Fault struct {
	Program, Setting string
	Killed           string // kill -9 five times into HTTP: lost / repeated records
	Flaky            string // a receiver that is 5 s healthy and 5 s failing: lost / repeated, seconds of drain
}

// Faults are those of the settings under which a program loses least, and of its defaults where they differ.
var Faults = []Fault{
	{"syslog-ng", "flow-control", "0 / 5.8k-16k", "0 / 0, 0.2 s"},
	{"loggie", "defaults", "0 / 6.1k-16k", "0 / 0, 1.6 s"},
	{"fluent-bit", "filesystem chunks, threaded: off", "0 / 25k-211k", "0 / 0, 0.5-2 s; by its default scheduler 120 s"},
	{"fluent-bit", "memory chunks, the default", "25k-522k / 0", ""},
	{"vector", "acknowledgements", "0 / 28k-143k", "0 / 0, 0.2 s; by its defaults 10.8 s"},
	{"vector", "acknowledgements and disk buffer", "0-1.8k / 14k-1.0M", "0 / 0, 0.1 s"},
	{"otelcol", "no queue", "0 / 181k-3.3M", ""},
	{"otelcol", "persistent queue", "148-166 / 19k-2.1M", "0 / 0, 0.4 s"},
	{"telegraf", "statefile", "0 / 103k-3.0M", "0 / 0, 0.1 s"},
	{"rsyslog", "disk queue", "0 / 18k-51k", "318k / 0: what came in the phases of 503"},
	{"flume", "file channel", "0 / 1-946", "0 / 0, 22-30 s behind at 0.5 MB/s"},
}
