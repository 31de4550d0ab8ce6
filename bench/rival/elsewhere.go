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
	},
	"w2": {
		{"fluent-bit", .066, 262, "5.1.1"}, {"otelcol", .032, 125, "in OTLP JSON"}, {"syslog-ng", .029, 116, "3.38"},
		{"telegraf", .023, 92, "1.40"}, {"rsyslog", .014, 57, "8.2302"}, {"vector", .006, 11, "0.58"},
	},
	"w3": {
		{"fluent-bit", .082, 207, "filesystem chunks, threaded: off"}, {"syslog-ng", .053, 133, "flow-control, 4 workers"},
		{"otelcol", .045, 114, "no queue"}, {"telegraf", .039, 98, "positions kept on a clean stop only"},
		{"vector", .036, 94, "acknowledgements"}, {"loggie", .025, 63, "parallelism 4"}, {"rsyslog", .009, 23, "disk queue"},
	},
	"w4_json": {
		{"fluent-bit", 1.8, 67, "778.435 became 778.4349999999999"}, {"rsyslog", 1.3, 47, "mmjsonparse"},
		{"loggie", 1.1, 40, "key order changes"},
		{"otelcol", .9, 33, "integers become doubles"}, {"telegraf", .7, 26, "nested"}, {"syslog-ng", .7, 25, "numbers become text"},
		{"vector", .4, 14, "its file sink is the limit; keys sorted"},
	},
	"w4_json_http": {{"vector", 1.9, 72, "keys sorted"}, {"fluent-bit", 1.7, 65, "as to a file"}},
	"w5": {
		{"otelcol", .92, 93, "20 consumers, set by hand"}, {"vector", .76, 76, "adaptive"}, {"syslog-ng", .54, 54, "20 workers"},
		{"telegraf", .05, 4.8, "one request at a time"},
	},
	"w5_500ms": {{"vector", .31, 6.2, "adaptive"}},
}
