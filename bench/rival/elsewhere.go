package rival

// Share is the result of another program on a workload: its speed, divided by the speed of the
// workload's limit on the same machine. The limit is, for example, a minimal program that does only
// the same work. Two machines with two virtual cores each were used, the second one for vector. Of
// every eight input lines, five were access log and three JSON. A share is the median of four
// rounds.
type Share struct {
	Program string
	OfLimit float64
	MBPerS  float64
	Setting string
}

// Elsewhere has the results of other programs, by workload. A program was run with the fastest
// of its settings that lose nothing in a kill. If there are none, it was run with its fastest
// settings. There is one exception: in w1, flume was run with its memory channel, which loses
// data in a kill.
var Elsewhere = map[string][]Share{
	"w1": {
		{"fluent-bit", .033, 289, "5.1.1"}, {"otelcol", .028, 244, "core 0.155"},
		{"syslog-ng", .015, 136, "3.38"},
		{"telegraf", .015, 131, "1.40"}, {"loggie", .012, 106, "2024-04"},
		{"rsyslog", .006, 57, "8.2302"}, {"vector", .006, 95, "0.58"},
		{"flume", .004, 37, "1.11 with the memory channel; 12 MB/s with the file channel"},
	},
	"w2": {
		{"fluent-bit", .066, 262, "5.1.1"}, {"otelcol", .032, 125, "writes OTLP JSON"},
		{"syslog-ng", .029, 116, "3.38"},
		{"telegraf", .023, 92, "1.40"}, {"rsyslog", .014, 57, "8.2302; on one core 134 MB/s"},
		{"vector", .006, 11, "0.58"},
		{"loggie", .025, 100, "does not write the last 449 to 933 records"},
		{"flume", .003, 11, "file channel; 39 MB/s with the memory channel, which loses its data " +
			"in a kill"},
	},
	"w3": {
		{"fluent-bit", .082, 207, "filesystem chunks, threaded: off"},
		{"syslog-ng", .053, 133, "flow-control, 4 workers"},
		{"otelcol", .045, 114, "no queue"},
		{"telegraf", .039, 98, "saves positions only when it stops without a kill"},
		{"vector", .036, 94, "acknowledgements"}, {"loggie", .025, 63, "parallelism 4"},
		{"rsyslog", .009, 23, "disk queue"},
		{"flume", .0004, 1, "file channel, 4 sinks with one record per request"},
	},
	"w4_json": {
		{"fluent-bit", 1.8, 67, "changes numbers: 778.435 became 778.4349999999999"},
		{"rsyslog", 1.3, 47, "module mmjsonparse"},
		{"loggie", 1.1, 40, "changes the order of keys"},
		{"otelcol", .9, 33, "changes integers to floating-point numbers"},
		{"telegraf", .7, 26, "writes a nested object"},
		{"syslog-ng", .7, 25, "changes numbers to text"},
		{"vector", .4, 14, "its file sink is the bottleneck; sorts the keys"},
	},
	"w4_json_http": {{"vector", 1.9, 72, "sorts the keys"},
		{"fluent-bit", 1.7, 65, "changes numbers"}},
	"w4_regex": { // no share, because the limit was not measured there
		{"fluent-bit", 0, 37, "regexp library Onigmo"}, {"syslog-ng", 0, 27, "regexp library PCRE"},
		{"otelcol", 0, 25, "operator regex_parser"}, {"loggie", 0, 18, "into a file"},
		{"vector", 0, 8.3, "its file sink is the bottleneck; over HTTP 47 MB/s"},
	},
	"w5": {
		{"otelcol", .92, 93, "20 consumers, set by hand"},
		{"vector", .76, 76, "adaptive concurrency"},
		{"syslog-ng", .54, 54, "20 workers"},
		{"fluent-bit", .22, 173, "20 workers; requests of 2.5 MB, of which the receiver " +
			"serves 800 MB/s"},
		{"telegraf", .05, 4.8, "one request at a time"},
		{"loggie", 0, 62, "parallelism 20; its own CPU time is the bottleneck"},
		{"rsyslog", 0, 47, "20 threads; its own CPU time is the bottleneck"},
	},
	"w5_500ms": {{"vector", .31, 6.2, "adaptive concurrency"}},
}

// Fault has the results of another program that was killed, or that had a failing receiver. They
// were measured on other machines than those of docs/performance.md. Killed, Live and Flaky have
// two numbers of records: "lost / repeated".
type Fault struct {
	Program, Setting string
	Killed           string // kill -9 five times, HTTP, the file is complete from the start
	// Like Killed, but the file grows by 8 MB/s, and each request takes 100 ms.
	Live string
	// The program was not killed. Its receiver was healthy for 5 s, then failing for 5 s, and so
	// on. The numbers of lost and repeated records are followed by the time from the last written
	// line to the last received record.
	Flaky string
}

// Faults are the results by program and setting. The first setting of each program loses least
// when the program is killed. Some programs were also measured with other settings, such as the
// defaults.
var Faults = []Fault{
	{"syslog-ng", "flow-control", "0 / 5.8k-9.0k", "0 / 16k", "0 / 0, 0.2 s"},
	{"syslog-ng", "disk-buffer, reliable", "0 / 1", "0 / 16k-17k", ""},
	{"loggie", "defaults", "0 / 6.1k-8.2k", "0 / 10k-16k", "0 / 0, 1.6 s"},
	{"fluent-bit", "filesystem chunks, threaded: off", "0 / 154k-211k", "0 / 6.4k-25k",
		"0 / 0, 0.5-2 s; 120 s with the default scheduler"},
	{"fluent-bit", "memory chunks, the default", "453k-522k / 0", "25k-35k / 0", ""},
	{"vector", "acknowledgements", "0 / 124k-143k", "0 / 28.5k-40.7k",
		"0 / 0, 0.2 s; 10.8 s with the defaults"},
	{"vector", "acknowledgements and disk buffer", "0 / 878k-1.0M", "0-1.8k / 14.1k-25.9k",
		"0 / 0, 0.1 s"},
	{"vector", "no acknowledgements, the default", "0-1.3k / 62.3k-65.3k", "0-1.8k / 9.0k-16.7k",
		"0 / 0, 0.2 s"},
	{"otelcol", "no queue", "0 / 2.8M-3.3M", "0 / 181k, with 5 ms per request", ""},
	{"otelcol", "persistent queue", "0 / 1.8M-2.1M", "148-166 / 19k", "0 / 0, 0.4 s"},
	{"telegraf", "statefile", "0 / 2.2M-3.0M", "0 / 103k", "0 / 0, 0.1 s"},
	{"rsyslog", "disk queue", "0 / 18k-22k", "0 / 51k",
		"318k / 0: it lost the records of the phases with 503"},
	{"rsyslog", "memory queues", "0.4k-67k / 24k-26k", "10k-12k / 0", ""},
	{"flume", "file channel", "0 / 1", "0 / 1-946, with files that arrive at 0.5 MB/s",
		"0 / 0, 22-30 s, with files that arrive at 0.5 MB/s"},
}
