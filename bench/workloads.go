package main

import (
	"os"
	"time"

	"github.com/penstock-io/penstock/bench/load"
	"github.com/penstock-io/penstock/bench/receiver"
)

// workload is a measurement that answers a question: which share of the speed of the limit does a
// program reach, and how much CPU time and memory does it need? The limit is usually the speed of a
// simple program, such as one that only copies the input. For a slow receiver or a growing file, it
// is the highest possible speed.
type workload struct {
	name, about           string
	limitName, limitAbout string // "" where there is none
	want                  wants
	kind                  load.Kind
	size                  quickOrFull // bytes of input; 0 means the value of the flag -size
	halved                bool        // the quick run uses half of the bytes
	pairs                 quickOrFull // number of pairs; 0 means the value of the flag -pairs
	// weight is the relative share of the workload in the time that the flag -within allows. 0
	// means 1, or 3 if the workload has a run of penstock (ours) and the number of pairs is that of
	// the flag -pairs.
	weight float64
	input  func(e *env) (load.Input, error)
	// absent returns the reason why the workload cannot be measured on this machine, or "" if it
	// can. If absent is nil, it can always be measured.
	absent      func() string
	limit, ours func(e *env, in load.Input) (measure, error) // both nil for limitsName
}

// wants are the targets of a workload. A 0 in the first three fields means no target.
type wants struct {
	ofLimit, cpuPerGB, rssMiB float64
	most, least               map[string]float64 // by the name of a figure
}

// quickOrFull has a number for the quick run and one for the full run.
type quickOrFull [2]int64

const (
	mib = 1 << 20
	gib = 1 << 30
)

var resident = wants{rssMiB: 64}

func (w wants) with(ofLimit, cpuPerGB float64) wants {
	w.ofLimit, w.cpuPerGB = ofLimit, cpuPerGB
	return w
}

var workloads = slicesOf([]workload{{name: limitsName, about: "what the machine does by itself",
	kind: load.Combined, halved: true}},
	streams, []workload{real(streams[0]), real(streams[3])}, compressed, parses, receivers, crashes,
	databases,
	follows, smallFiles)

func slicesOf(groups ...[]workload) (all []workload) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

var streams = []workload{
	{
		name: "w1", about: "spool_dir -> drop, lines not parsed", kind: load.Combined,
		want:       resident.with(.5, .25),
		limitName:  "go_count",
		limitAbout: "a Go loop that reads blocks of 256 KiB and counts line ends",
		limit:      func(e *env, in load.Input) (measure, error) { return e.limit(in, "count") },
		ours:       func(e *env, in load.Input) (measure, error) { return e.once(in, toDrop) },
	},
	{
		halved: true, name: "w2", about: "spool_dir -> file, lines not parsed, fsync: interval",
		kind: load.Combined, want: resident.with(.6, 0),
		limitName: "go_copy", limitAbout: "a Go loop that copies the file in blocks of 256 KiB",
		limit: func(e *env, in load.Input) (measure, error) { return e.copied(in, "copy") },
		ours: func(e *env, in load.Input) (measure,
			error) {
			return e.intoFile(in, toFile("interval"))
		},
	},
	{
		halved: true, name: "w2_ack", about: "spool_dir -> file, lines not parsed, fsync: ack",
		kind: load.Combined, want: resident.with(.7, 0),
		limitName: "go_copy_fsync", limitAbout: "the same loop, and one fsync at its end",
		limit: func(e *env, in load.Input) (measure, error) { return e.copied(in, "copy_fsync") },
		ours: func(e *env, in load.Input) (measure,
			error) {
			return e.intoFile(in, toFile("ack"))
		},
	},
	{
		halved: true, name: "w3", about: "spool_dir -> HTTP, 4 endpoints, bodies of 256 KiB",
		kind: load.Combined,
		want: resident.with(.6, 1), limitName: "go_post_4",
		limitAbout: "a Go program that only posts bodies of 256 KiB on 4 connections",
		limit:      func(e *env, in load.Input) (measure, error) { return e.posted(in, 4) },
		ours: func(e *env, in load.Input) (measure, error) {
			return e.intoReceiver(in, receiver.Behaviour{}, 4, "")
		},
	},
}

func noRealLogs() string {
	if os.Getenv("PENSTOCK_DATA") == "" {
		return "PENSTOCK_DATA names no folder of real logs"
	}
	return ""
}

// real returns a variant of a workload that uses logs of real systems instead of generated lines.
func real(of workload) workload {
	of.name += "_real"
	of.about += ", logs of real systems"
	of.kind, of.absent, of.halved, of.pairs = load.Real, noRealLogs, false, quickOrFull{1, 7}
	return of
}

const encodingJSONAbout = "a Go loop in one goroutine that decodes each line into a map " +
	"with encoding/json, adds and drops a field, and encodes it"

var parses = []workload{
	{
		name: "w4_json", about: "parse JSON, add a field, drop a field -> JSON file",
		kind: load.JSON, want: wants{ofLimit: 8},
		size: quickOrFull{128 * mib, gib}, pairs: quickOrFull{1, 3}, limitName: "encoding_json",
		limitAbout: encodingJSONAbout,
		limit:      encodedByGo, ours: func(e *env, in load.Input) (measure,
			error) {
			return e.parsed(in, "json")
		},
	},
	{
		name: "w4_json_http", about: "parse JSON, add a field, drop a field -> HTTP, 4 endpoints",
		kind: load.JSON,
		want: wants{ofLimit: 8},
		size: quickOrFull{128 * mib, gib}, pairs: quickOrFull{1, 3}, limitName: "encoding_json",
		limitAbout: encodingJSONAbout,
		limit:      encodedByGo, ours: parsedAndPosted,
	},
	accessLog("w4_combined", "combined", "go_lines",
		"a Go loop in one thread that reads the first and the last byte of each line", .08,
		linesByGo),
	accessLog("w4_dissect", "dissect", "go_lines", "the same loop", .08, linesByGo),
	accessLog("w4_regex", "regex", "go_regexp",
		"a Go loop in one goroutine that only matches the lines with package regexp", 1.5,
		matchedByGo),
}

func accessLog(name, format, limitName, about string, target float64,
	limit func(*env, load.Input) (measure, error)) workload {
	return workload{
		name: name, about: "access log by parse: " + format + " -> JSON file", kind: load.Combined,
		want: wants{ofLimit: target},
		size: quickOrFull{256 * mib, gib}, pairs: quickOrFull{1, 3}, limitName: limitName,
		limitAbout: about, limit: limit,
		ours: func(e *env, in load.Input) (measure, error) { return e.parsed(in, format) },
	}
}

func linesByGo(e *env, in load.Input) (measure, error) { return e.limit(in, "lines") }

var (
	slow50  = slow{50 * time.Millisecond, 20}
	slow500 = slow{500 * time.Millisecond, 40}
)

// atLeast is the minimum time for which a slow receiver gets data with the flag -full or -figures.
// In a shorter time, the start of penstock would be too large a part of the result.
const atLeast = 20 * time.Second

func slowly(name, about string, s slow, during time.Duration, target, inFlight float64) workload {
	w := workload{
		name: name, about: about, kind: load.Combined, pairs: quickOrFull{1, 3}, weight: 3,
		want:      wants{ofLimit: target},
		limitName: "bound", limitAbout: "the receiver's highest rate, with 1,000 records " +
			"per request",
		input: func(e *env) (load.Input, error) {
			if e.full || e.figures {
				return e.inputOf(s.records(max(during, atLeast)))
			}
			return e.inputOf(s.records(during))
		},
		limit: func(_ *env, in load.Input) (measure, error) { return s.bound(in), nil },
		ours:  func(e *env, in load.Input) (measure, error) { return e.slowly(in, s) },
	}
	if inFlight > 0 {
		w.want.most = map[string]float64{"in_flight": inFlight}
	}
	return w
}

// flaky is the receiver of the workload w7_backlog. While it is healthy, it accepts about 100 MB/s
// in bodies of 256 KiB.
var flaky = receiver.Behaviour{Delay: 10 * time.Millisecond, Slots: 4}

const phase = 5 * time.Second

// flakyLive returns a load of 8 MB/s. It ends soon after the receiver's second failing phase or, in
// the full run, soon after the third one.
func flakyLive(e *env) live {
	l := live{files: 1, rate: 8e6, seconds: 21.5, behaves: receiver.Behaviour{Phase: phase}}
	if e.full {
		l.seconds = 31.5
	}
	return l
}

var receivers = []workload{
	slowly("w5", "an HTTP receiver that needs 50 ms per request, serves 20 requests at once and "+
		"queues the others; penstock's default settings", slow50,
		10*time.Second, .97, 34),
	slowly("w5_500ms", "the same with 500 ms per request and 40 requests at once; the first 20 s",
		slow500,
		20*time.Second, .9, 0),
	{
		name: "w7", about: "an HTTP receiver that alternates 5 s healthy and 5 s failing " +
			"(answers 503, or hangs); lines are written at 8 MB/s", kind: load.Combined,
		size: quickOrFull{1, 1}, pairs: quickOrFull{1, 1},
		want:      wants{most: map[string]float64{"repeated": 0, "drain_s": 1}},
		limitName: "fed", limitAbout: "the rate at which the lines are written",
		limit: func(e *env, in load.Input) (measure, error) { return flakyLive(e).fed(in), nil },
		ours:  func(e *env, _ load.Input) (measure, error) { return flakyLive(e).run(e) },
	},
	{
		name:  "w7_backlog",
		about: "the same with a complete file and a receiver of at most 100 MB/s",
		kind:  load.Combined,
		size:  quickOrFull{704 * mib, 3 * gib / 2}, pairs: quickOrFull{1, 1},
		want:      wants{ofLimit: 1 / 2.1, most: map[string]float64{"repeated": 0}},
		limitName: "healthy", limitAbout: "penstock while the receiver stays healthy",
		limit: func(e *env, in load.Input) (measure,
			error) {
			return e.intoReceiver(in, flaky, 4, "")
		},
		ours: func(e *env, in load.Input) (measure, error) {
			b := flaky
			b.Phase = phase
			return e.intoReceiver(in, b, 4, "")
		},
	},
}

// smallBatches describes the options of withReplay(500).
const smallBatches = " in batches of 500 records, with checkpoint.replay: " + replay

func crashed(name, about string, size quickOrFull, most map[string]float64,
	run func(*env, load.Input) (measure, error)) workload {
	return workload{
		name: name, about: "kill -9 five times, delivering " + about, kind: load.Combined,
		size: size, pairs: quickOrFull{1, 2}, want: wants{most: most, least: allKills},
		ours: longEnough(most, run),
	}
}

var withinBound = map[string]float64{"repeated_of_bound": 1}

// atTheReceiver is the maximum number of repeated records in the workload w6_live. The file grows
// by 8 MB/s, and a request takes 100 ms. So at each of five kills, about 0.8 MB in 3,200 records
// have been sent but not answered. In total, these are 16,000 records. The maximum is a quarter
// higher.
var atTheReceiver = map[string]float64{"repeated": 20_000}

var exact = map[string]float64{"repeated": 0}

// allKills is a target that a job misses if it ends before the last kill.
var allKills = map[string]float64{"kills": kills}

var crashes = []workload{
	crashed("w6", "into HTTP"+smallBatches, quickOrFull{128 * mib, 512 * mib}, withinBound,
		killedIntoHTTP),
	{
		name: "w6_live", about: "kill -9 five times while following a file that grows by 8 MB/s, " +
			"delivering into HTTP with default settings",
		kind: load.Combined, size: quickOrFull{1, 1}, pairs: quickOrFull{1, 2},
		want: wants{most: atTheReceiver, least: allKills}, ours: killedLive,
	},
	crashed("w6_file", "into a file"+smallBatches, quickOrFull{gib, gib}, exact, killedIntoFile),
	crashed("w6_sqlite", "into SQLite"+smallBatches, quickOrFull{128 * mib, 256 * mib}, exact,
		killedIntoSQLite),
	inPostgres(crashed("w6_postgres", "into PostgreSQL", quickOrFull{128 * mib, 512 * mib}, exact,
		killedIntoPostgres)),
}

func inPostgres(w workload) workload {
	w.absent = noPostgres
	return w
}

var databases = []workload{
	{
		name: "w8", about: "lines -> SQLite", kind: load.Combined,
		size: quickOrFull{64 * mib, 128 * mib}, want: wants{ofLimit: .9},
		weight:    10, // seven pairs, 3 s each
		limitName: "sqlite_inserts", limitAbout: "a Go loop of prepared inserts with the same " +
			"batches and synchronous = FULL",
		limit: insertedBare, ours: intoSQLite,
	},
	inPostgres(workload{
		name: "w9", about: "access log by parse: combined -> PostgreSQL, 11 columns",
		kind: load.Combined,
		size: quickOrFull{256 * mib, 512 * mib}, halved: true, pairs: quickOrFull{3, 7}, weight: 5,
		want:      wants{ofLimit: 1.5, most: exact},
		limitName: "psql_copy", limitAbout: `psql's \copy of the same rows, already parsed`,
		limit: copiedByPsql, ours: intoPostgres,
	}),
}

// hundred returns a load of 100 files.
func hundred(e *env) live {
	l := live{files: 100, rate: 100e6, seconds: 8}
	if e.full {
		l.seconds = 30
	}
	return l
}

var follows = []workload{
	{
		name: "w10", about: "100 files that grow by 100 MB/s together -> HTTP, 4 endpoints",
		kind: load.Combined,
		size: quickOrFull{1, 1}, pairs: quickOrFull{1, 3}, limitName: "fed",
		limitAbout: "the rate at which the files grow",
		want: wants{ofLimit: .9, most: map[string]float64{"repeated": 0, "drain_s": 1,
			"cores": .5}},
		limit: func(e *env, in load.Input) (measure, error) { return hundred(e).fed(in), nil },
		ours:  func(e *env, _ load.Input) (measure, error) { return hundred(e).run(e) },
	},
}
