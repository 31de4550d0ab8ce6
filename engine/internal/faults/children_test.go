//go:build linux

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// In the cases with faulty children, the penstock program starts this test binary as its child
// process, in the folder of the case and with the protocol ndjson. The arguments of the child are
// "child", the kind (worker or filter), the name of the fault, and "always" or "once".

// batchLine is the line that the program writes to a child.
type batchLine struct {
	ID      uint64           `json:"id"`
	Records []map[string]any `json:"records"`
}

// childFault is a fault of a child. The function answer writes the child's faulty answer to a
// batch, or ends the process.
type childFault struct {
	name   string
	worker effect
	filter effect
	stores bool // a worker stores the batch before it answers
	answer func(b batchLine, out *bufio.Writer)
}

func answerWith(form string) func(batchLine, *bufio.Writer) {
	return func(b batchLine, out *bufio.Writer) {
		fmt.Fprintln(out, strings.ReplaceAll(form, "ID", fmt.Sprint(b.ID)))
	}
}

// good writes a correct answer to a batch: a filter returns the records unchanged, and a worker
// reports the batch as delivered.
func good(kind string, b batchLine, out *bufio.Writer) {
	if kind == "worker" {
		fmt.Fprintf(out, `{"id":%d,"delivered":true}`+"\n", b.ID)
		return
	}
	text, err := json.Marshal(map[string]any{"id": b.ID, "records": b.Records})
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(out, "%s\n", text)
}

var childFaults = []childFault{
	{"exits 0 with a batch", poisons, poisons, false,
		func(batchLine, *bufio.Writer) { os.Exit(0) }},
	{"exits 1 with a batch", poisons, poisons, false,
		func(batchLine, *bufio.Writer) { os.Exit(1) }},
	{"exits 1 after storing", poisons, poisons, true,
		func(batchLine, *bufio.Writer) { os.Exit(1) }},
	{"hangs", blocks, blocks, false, func(batchLine, *bufio.Writer) { wait() }},
	{"hangs after storing", blocks, blocks, true, func(batchLine, *bufio.Writer) { wait() }},
	{"answers garbage", decides, decides, false, answerWith("ok")},
	{"answers an empty line", decides, decides, false, answerWith("")},
	{"answers null", decides, decides, false, answerWith("null")},
	{"answers a list", decides, decides, false, answerWith("[]")},
	{"answers an empty object", decides, decides, false, answerWith("{}")},
	{"answers another id", decides, decides, false,
		answerWith(`{"id":999999999,"delivered":true,"records":[]}`)},
	{"answers a text as id", decides, decides, false, answerWith(`{"id":"ID","delivered":true}`)},
	{"answers a negative id", decides, decides, false, answerWith(`{"id":-1,"delivered":true}`)},
	{"answers delivered as text", decides, decides, false,
		answerWith(`{"id":ID,"delivered":"true"}`)},
	{"answers an error", decides, decides, false, answerWith(`{"id":ID,"error":"no"}`)},
	{"answers not delivered", decides, decides, true, answerWith(`{"id":ID,"delivered":false}`)},
	{"refuses a record that is not there", decides, decides, false,
		answerWith(`{"id":ID,"delivered":true,"refused":[100000]}`)},
	{"refuses a negative record", decides, decides, false,
		answerWith(`{"id":ID,"delivered":true,"refused":[-1]}`)},
	{"refuses one record twice", decides, decides, false,
		answerWith(`{"id":ID,"delivered":true,"refused":[1,1]}`)},
	{"retries and refuses one record", decides, decides, false,
		answerWith(`{"id":ID,"delivered":true,"refused":[1],"retry":[1]}`)},
	{"answers half a line and exits", poisons, poisons, false,
		func(b batchLine, out *bufio.Writer) {
			fmt.Fprintf(out, `{"id":%d,"deliv`, b.ID)
			out.Flush()
			os.Exit(0)
		}},
	{"answers half a line and hangs", blocks, blocks, false, func(b batchLine, out *bufio.Writer) {
		fmt.Fprintf(out, `{"id":%d,"deliv`, b.ID)
		out.Flush()
		wait()
	}},
	{"answers 9 MB", decides, decides, false,
		answerWith(`{"id":ID,"error":"` + strings.Repeat("x", 9<<20) + `"}`)},
	{"answers twice", decides, decides, true, func(b batchLine, out *bufio.Writer) {
		good(os.Args[2], b, out)
		good(os.Args[2], b, out)
	}},
	{"prints before the answer", decides, decides, true, func(b batchLine, out *bufio.Writer) {
		fmt.Fprintln(out, "debug: a batch")
		good(os.Args[2], b, out)
	}},
	{"closes its output and lives", decides, decides, true, func(batchLine, *bufio.Writer) {
		os.Stdout.Close()
		wait()
	}},
	{"exits 0 after the answer", passes, passes, true, func(b batchLine, out *bufio.Writer) {
		good(os.Args[2], b, out)
		out.Flush()
		os.Exit(0)
	}},
	{"exits 1 after the answer", decides, decides, true, func(b batchLine, out *bufio.Writer) {
		good(os.Args[2], b, out)
		out.Flush()
		os.Exit(1)
	}},
	{"answers after the deadline", blocks, blocks, true, func(b batchLine, out *bufio.Writer) {
		pause(4 * time.Second)
		good(os.Args[2], b, out)
	}},
	{"answers with carriage returns", decides, decides, true, func(b batchLine, out *bufio.Writer) {
		var text strings.Builder
		w := bufio.NewWriter(&text)
		good(os.Args[2], b, w)
		w.Flush()
		fmt.Fprint(out, strings.ReplaceAll(text.String(), "\n", "\r\n"))
	}},
}

// answersOfFilters are faults that only a filter can have.
var answersOfFilters = []childFault{
	{"one record too few", blocks, decides, false, func(b batchLine,
		out *bufio.Writer) {
		b.Records = b.Records[1:]
		good("filter", b, out)
	}},
	{"one record too many", blocks, decides, false, func(b batchLine, out *bufio.Writer) {
		b.Records = append(b.Records, b.Records[0])
		good("filter", b, out)
	}},
	{"no records", blocks, decides, false, answerWith(`{"id":ID,"records":[]}`)},
	{"records of numbers", blocks, decides, false, answerWith(`{"id":ID,"records":[1,2,3]}`)},
	{"a nested list", blocks, decides, false, func(b batchLine, out *bufio.Writer) {
		text, _ := json.Marshal(map[string]any{"id": b.ID, "records": [][][]any{{{b.Records[0]}}}})
		fmt.Fprintf(out, "%s\n", text)
	}},
}

func wait() { pause(time.Minute) }

// child runs the process of a child and never returns.
func child(args []string) {
	kind, name, when := args[0], args[1], args[2]
	var fault childFault
	for _, f := range append(childFaults, answersOfFilters...) {
		if f.name == name {
			fault = f
		}
	}
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		var b batchLine
		if err := json.Unmarshal([]byte(line), &b); err != nil {
			fmt.Fprintln(os.Stderr, "the batch is no JSON:", err)
			os.Exit(3)
		}
		faulty := when == "always" || os.Mkdir("struck", 0o755) == nil
		if _, err := os.Stat("healed"); err == nil {
			faulty = false
		}
		if kind == "worker" && (!faulty || fault.stores) {
			store(b)
		}
		if faulty {
			fault.answer(b, out)
		} else {
			good(kind, b, out)
		}
		out.Flush()
	}
}

func store(b batchLine) {
	var text strings.Builder
	for _, r := range b.Records {
		fmt.Fprintln(&text, r["message"])
	}
	f, err := os.CreateTemp("got", "part.")
	if err == nil {
		_, err = f.WriteString(text.String())
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join("got", "done."+filepath.Base(f.Name())))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "store:", err)
		os.Exit(4)
	}
}

// childCases returns the cases for the faults of children. A child has its fault either at the
// first batch or at all batches. Most faults are tried both with a worker and with a filter.
func childCases() (table []faultCase) {
	for i, f := range childFaults {
		table = append(table, childCase(f, f.worker, "worker", firstOne),
			childCase(f, f.filter, "filter", firstOne))
		table = append(table, childCase(f, f.worker, []string{"worker", "filter"}[i%2], always))
	}
	for _, f := range answersOfFilters {
		table = append(table, childCase(f, f.filter, "filter", firstOne),
			childCase(f, f.filter, "filter", always))
	}
	return table
}

func childCase(f childFault, e effect, kind string, when schedule) faultCase {
	schedules := "once"
	if when.name == "always" {
		schedules = "always"
	}
	d := delivery{
		source: []source{spoolSource, tailSource}[len(f.name)%2], count: 1000,
		heal:    func(r *rig) { r.write("healed", "") },
		prepare: func(r *rig) { r.write("got/README", "") },
	}
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	command := fmt.Sprintf(`exec: { command: [%q, child, %s, %q, %s], protocol: ndjson, grace: 1s`,
		self, kind, f.name,
		schedules)
	if kind == "worker" {
		d.sink, d.stored = command+`, workers: 2 }`, storedIn("got/done.*")
	} else {
		d.processors = `{ ` + command + `, timeout: 2s } }`
		d.sink, d.stored, d.exactlyOnce = `file: { path: ./out.log, format: raw }`,
			storedIn("out.log"), true
	}
	c := d.as(fmt.Sprintf("exec-%s-ndjson/%s/%s", kind, f.name, when.name), e, when)
	return c
}
