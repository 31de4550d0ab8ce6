package rival

import (
	"fmt"
	"strings"
)

// programs are the other programs. Each has the fastest of the measured settings that follow the
// documentation of its vendor. The workload w3, which posts records to a receiver, has one more
// condition. A program that can wait for the receiver must not move its position in the input past
// a record before the receiver has the record.
var programs = []Program{
	{Name: "rsyslog", Part: 8, parts: map[string]int64{"w3": 64}, names: []string{"rsyslogd"},
		probe: []string{"-v"}, files: rsyslog,
		args: []string{"-n", "-i", "{dir}/pid", "-f", "{dir}/rsyslog.conf"}},
	{Name: "syslog-ng", Part: 4, names: []string{"syslog-ng"}, probe: []string{"-V"},
		files: syslogNG,
		args: []string{"-F", "--no-caps", "-f", "{dir}/syslog-ng.conf", "-R", "{dir}/persist", "-c",
			"{dir}/control", "-p", "{dir}/pid"}},
	{Name: "fluent-bit", Part: 2, names: []string{"fluent-bit"}, probe: []string{"--version"},
		files: fluentBit,
		args:  []string{"-c", "{dir}/fluent-bit.yaml"}},
	{Name: "vector", Part: 4, names: []string{"vector"}, probe: []string{"--version"},
		files: vector,
		args:  []string{"--quiet", "--config", "{dir}/vector.yaml"}},
	{Name: "otelcol", Part: 4, names: []string{"otelcol-contrib", "otelcol"},
		probe: []string{"--version"}, files: collector,
		args: []string{"--config", "{dir}/collector.yaml"}},
	{Name: "telegraf", Part: 4, names: []string{"telegraf"}, probe: []string{"--version"},
		files: telegraf,
		args:  []string{"--quiet", "--config", "{dir}/telegraf.conf"}},
	{Name: "logstash", Part: 4, names: []string{"logstash"}, probe: []string{"--version"},
		files: logstash,
		args:  []string{"--path.data", "{dir}/data", "-f", "{dir}/logstash.conf"}},
	{Name: "loggie", Part: 4, names: []string{"loggie"}, probe: []string{"-version"}, files: loggie,
		args: []string{"-config.system={dir}/loggie.yml", "-config.pipeline={dir}/pipeline.yml"}},
	{Name: "flume", Part: 4, parts: map[string]int64{"w3": 64}, names: []string{"flume-ng"},
		probe: []string{"version"}, files: flume,
		args: []string{"agent", "-n", "a", "-f", "{dir}/flume.properties", "-Xmx512m"}},
}

// one returns a program's config that consists of a single file with the given name. If sink is "",
// the program does not support the workload, and one returns nil.
func one(name, head, sink string) map[string]string {
	if sink == "" {
		return nil
	}
	return map[string]string{name: head + sink}
}

func rsyslog(j Job) map[string]string {
	head := fmt.Sprintf(`global(workDirectory=%q maxMessageSize="64k")
module(load="imfile" mode="inotify")
template(name="raw" type="string" string="%%msg%%\n")
input(type="imfile" file=%q tag="bench" ruleset="bench" persistStateInterval="10000")
`, j.Dir, j.Input)
	body := map[string]string{
		"w1": `if $msg == "never" then { action(type="omfile" file="/dev/null") }
  stop`, // the program does not start without an action
		"w2": fmt.Sprintf(`action(type="omfile" file=%q template="raw" ioBufferSize="256k")`,
			j.Out),
		"w3": fmt.Sprintf(
			`action(type="omelasticsearch" server=%q template="raw" bulkmode="on" maxbytes="256k" retryfailures="off"
    action.resumeRetryCount="-1" queue.type="Disk" queue.filename="bench" queue.maxDiskSpace="4g" queue.workerThreads="4"
    queue.dequeueBatchSize="1024")`, j.URL),
	}[j.Workload]
	if body == "" {
		return nil
	}
	load := ""
	if j.Workload == "w3" {
		load = "module(load=\"omelasticsearch\")\n"
	}
	return one("rsyslog.conf", load+head,
		"ruleset(name=\"bench\" queue.type=\"Direct\") {\n  "+body+"\n}\n")
}

func syslogNG(j Job) map[string]string {
	threaded := "no" // with one thread, one file into one file is 25 % faster
	if j.Workload == "w3" {
		threaded = "yes"
	}
	head := fmt.Sprintf(`@version: 3.38
options { stats-freq(0); log-fifo-size(20000); keep-hostname(yes); threaded(%s); };
source in { file(%q flags(no-parse) log-iw-size(10000) log-fetch-limit(1000) follow-freq(0.1) log-msg-size(65536)); };
log { source(in); destination(out); flags(flow-control); };
`, threaded, j.Input)
	return one("syslog-ng.conf", head, map[string]string{
		"w1": "destination out { file(\"/dev/null\" template(\"${MSG}\\n\") " +
			"flush-lines(1000)); };\n",
		"w2": fmt.Sprintf("destination out { file(%q template(\"${MSG}\\n\") "+
			"flush-lines(1000)); };\n", j.Out),
		"w3": fmt.Sprintf("destination out { http(url(%q) method(\"POST\") body(\"${MSG}\") "+
			"delimiter(\"\\n\") body-suffix(\"\\n\")"+
			" workers(4) batch-lines(1000) batch-bytes(256Kb) batch-timeout(100)); };\n",
			j.URL+"/0"),
	}[j.Workload])
}

func fluentBit(j Job) map[string]string {
	head := fmt.Sprintf(
		`service: { flush: 0.2, log_level: error, storage.path: %q, scheduler.base: 1, scheduler.cap: 3 }
pipeline:
  inputs:
    - { name: tail, path: %q, read_from_head: true, db: %q, buffer_chunk_size: 1M, buffer_max_size: 4M, storage.type: filesystem,
        threaded: off }
  outputs:
`, j.Dir+"/chunks", j.Input, j.Dir+"/tail.db")
	return one("fluent-bit.yaml", head, map[string]string{
		"w1": "    - { name: \"null\", match: \"*\" }\n",
		"w2": fmt.Sprintf("    - { name: file, match: \"*\", file: %q, format: "+
			"template, template: \"{log}\", retry_limit: no_limits }\n",
			j.Out),
		"w3": fmt.Sprintf("    - { name: http, match: \"*\", host: 127.0.0.1, port: %s, uri: "+
			"/0, format: json_lines, workers: 4,"+
			" retry_limit: no_limits }\n", port(j.URL)),
	}[j.Workload])
}

func vector(j Job) map[string]string {
	head := fmt.Sprintf(`data_dir: %q
sources:
  in: { type: file, include: [%q], read_from: beginning, max_read_bytes: 1048576, glob_minimum_cooldown_ms: 200,
        fingerprint: { strategy: device_and_inode }, file_key: "", host_key: "" }
sinks:
`, j.Dir, j.Input)
	return one("vector.yaml", head, map[string]string{
		"w1": "  out: { type: blackhole, inputs: [in], print_interval_secs: 0 }\n",
		"w2": fmt.Sprintf("  out: { type: file, inputs: [in], path: %q, encoding: { codec: text },"+
			" acknowledgements: { enabled: true } }\n", j.Out),
		"w3": fmt.Sprintf("  out: { type: http, inputs: [in], uri: %q, encoding: "+
			"{ codec: text },\n"+
			"    framing: { method: newline_delimited }, acknowledgements: { enabled: true },\n"+
			"    batch: { max_bytes: 2000000, timeout_secs: 0.2 }, buffer: { type: "+
			"memory, max_events: 10000 } }\n", j.URL+"/0"),
	}[j.Workload])
}

func collector(j Job) map[string]string {
	head := fmt.Sprintf(`receivers:
  filelog: { include: [%q], start_at: beginning, poll_interval: 200ms, storage: file_storage, retry_on_failure: { enabled: true } }
extensions:
  file_storage: { directory: %q }
service:
  extensions: [file_storage]
  telemetry: { metrics: { level: none }, logs: { level: error } }
  pipelines: { logs: { receivers: [filelog], exporters: [%s] } }
exporters:
`, j.Input, j.Dir, map[string]string{"w1": "nop", "w2": "file", "w3": "otlphttp"}[j.Workload])
	return one("collector.yaml", head, map[string]string{
		"w1": "  nop: {}\n",
		// The command bench counts the records in this output file. It cannot compare the size of
		// the file with the input, because the program adds text of its own to each record.
		"w2": fmt.Sprintf("  file: { path: %q }\n", j.Out),
		"w3": fmt.Sprintf("  otlphttp: { endpoint: %q, compression: none, sending_queue: "+
			"{ enabled: false } }\n", j.URL),
	}[j.Workload])
}

func telegraf(j Job) map[string]string {
	head := fmt.Sprintf(`[agent]
  interval = "1s"
  flush_interval = "200ms"
  flush_jitter = "0s"
  metric_batch_size = 1000
  metric_buffer_limit = 100000
  omit_hostname = true
[[inputs.tail]]
  files = [%q]
  from_beginning = true
  max_undelivered_lines = 50000
  data_format = "value"
  data_type = "string"
`, j.Input)
	raw := "  data_format = \"template\"\n  template = '''{{.Field \"value\"}}\n'''\n"
	return one("telegraf.conf", head, map[string]string{
		"w1": "[[outputs.discard]]\n",
		"w2": fmt.Sprintf("[[outputs.file]]\n  files = [%q]\n  use_batch_format = true\n%s",
			j.Out, raw),
		"w3": fmt.Sprintf("[[outputs.http]]\n  url = %q\n  use_batch_format = true\n%s",
			j.URL+"/0", raw),
	}[j.Workload])
}

func logstash(j Job) map[string]string {
	head := fmt.Sprintf("input { file { path => %q start_position => \"beginning\" sincedb_path "+
		"=> %q } }\n", j.Input, j.Dir+"/sincedb")
	return one("logstash.conf", head, map[string]string{
		"w1": "output { null {} }\n",
		"w2": fmt.Sprintf("output { file { path => %q codec => line { format => "+
			"\"%%{message}\" } } }\n", j.Out),
		"w3": fmt.Sprintf("output { http { url => %q http_method => \"post\" format => "+
			"\"json_batch\" pool_max => 4 } }\n", j.URL+"/0"),
	}[j.Workload])
}

func loggie(j Job) map[string]string {
	sink := map[string]string{
		"w1": "{ type: dev, printEvents: false }",
		"w3": fmt.Sprintf("{ type: elasticsearch, hosts: [%q], index: bench, parallelism: 4 }",
			j.URL),
	}[j.Workload] // no w2: its file sink writes the last records late
	if sink == "" {
		return nil
	}
	return map[string]string{
		"loggie.yml": "loggie: { http: { enabled: false } }\n",
		"pipeline.yml": fmt.Sprintf("pipelines:\n  - name: bench\n    sources: [{ type: "+
			"file, name: in, paths: [%q] }]\n    sink: %s\n",
			j.Input, sink),
	}
}

// flume returns the config of Flume. Flume's channel keeps events in a file, except in the workload
// w1, which drops all events. There, the channel keeps them in memory.
func flume(j Job) map[string]string {
	var sinks []string
	kinds := map[string][]string{
		"w1": {"type = null", "batchSize = 1000"},
		"w2": {"type = file_roll", "sink.directory = " + j.Dir + "/" + Rolled,
			"sink.rollInterval = 0", "sink.batchSize = 1000"},
	}
	channel := "type = file\na.channels.c.checkpointDir = " + j.Dir +
		"/channel\na.channels.c.dataDirs = " + j.Dir + "/channel-data"
	if j.Workload == "w1" {
		channel = "type = memory"
	}
	if j.Workload == "w3" { // one event in each request, and four sinks
		for i := range 4 {
			sinks = append(sinks, fmt.Sprint("k", i))
			kinds["w3"] = []string{
				"type = http", "endpoint = " + j.URL + "/0", "contentTypeHeader = text/plain",
				"acceptHeader = text/plain",
				"defaultBackoff = true", "defaultRollback = true", "backoff.200 = false",
				"rollback.200 = false",
				"incrementMetrics.200 = true",
			}
		}
	} else {
		sinks = []string{"k"}
	}
	if len(kinds[j.Workload]) == 0 {
		return nil
	}
	text := fmt.Sprintf(`a.sources = s
a.channels = c
a.sinks = %s
a.sources.s.type = TAILDIR
a.sources.s.channels = c
a.sources.s.filegroups = f
a.sources.s.filegroups.f = %s
a.sources.s.positionFile = %s/positions.json
a.sources.s.batchSize = 1000
a.channels.c.%s
a.channels.c.capacity = 100000
a.channels.c.transactionCapacity = 1000
`, strings.Join(sinks, " "), j.Input, j.Dir, channel)
	for _, sink := range sinks {
		text += "a.sinks." + sink + ".channel = c\n"
		for _, option := range kinds[j.Workload] {
			text += "a.sinks." + sink + "." + option + "\n"
		}
	}
	return map[string]string{"flume.properties": text, Rolled + "/.keep": ""}
}

// port returns the port of a URL such as http://127.0.0.1:1234.
func port(url string) string {
	for i := len(url) - 1; i >= 0; i-- {
		if url[i] == ':' {
			return url[i+1:]
		}
	}
	return "0"
}
