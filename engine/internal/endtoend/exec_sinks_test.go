package endtoend

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// stormShell is a bolt of Storm's multilang protocol as a shell script. It stores its tuples,
// answers heartbeats, and emits one tuple for each tuple that it acks. If the number of a tuple
// ends in 777, the first attempt of the tuple fails.
const stormShell = `
say() { printf '%s\nend\n' "$1"; }
hear() { IFS= read -r message && IFS= read -r end; }
hear; dir=${message#*'"pidDir":"'}; : >"${dir%%'"'*}/$$"; say "{\"pid\":$$}"
while hear; do
  case $message in *__heartbeat*) say '{"command":"sync"}'; continue;; esac
  id=${message##*'"id":"'}; id=${id%%'"'*}; n=${message#*'"tuple":["'}; n=${n#'\u003c'}; n=${n#'<'}; n=${n%%[!0-9]*}
  case $n in *777) if [ ! -e failed$n ]; then : >failed$n; say '{"command":"fail","id":"'$id'"}'; continue; fi;; esac
  echo "<$n>" >>got.txt
  say '{"command":"emit","anchors":["'$id'"],"tuple":[1],"need_task_ids":false}'
  say '{"command":"ack","id":"'$id'"}'
done`

// creditPython is a worker that reads as fast as it can and answers slowly. It stores the maximum
// number of records that it had at once. Its argument, if positive, is the number of records that
// it grants as credit.
const creditPython = `
import json, queue, sys, threading, time
allowed = int(sys.argv[1])
batches, lock, has, most, taken = queue.Queue(), threading.Lock(), 0, 0, 0
def reads():
    global has, most
    for line in sys.stdin:
        batch = json.loads(line)
        with lock:
            has += len(batch["records"])
            most = max(most, has)
        batches.put(batch)
    batches.put(None)
threading.Thread(target=reads, daemon=True).start()
while (batch := batches.get()) is not None:
    time.sleep(0.004)
    n = len(batch["records"])
    with lock:
        has -= n
    taken += n
    answer = {"id": batch["id"], "delivered": True}
    if allowed > 0:
        answer["credit"] = taken + allowed
    with open("most.txt", "a") as f: # before the answer: a kill between the two makes the count larger, never smaller
        f.write("%d %d\n" % (most, n))
    print(json.dumps(answer), flush=True)
`

// TestCreditOfChild checks that a child that grants a small credit never has more records than
// that, even when children are killed. Without a credit, a child must have more records at some
// time.
func TestCreditOfChild(t *testing.T) {
	t.Parallel()
	python(t)
	needChildren(t)
	const records = 6000
	run := func(allowed int) (most int) {
		dir := t.TempDir()
		var text strings.Builder
		for n := range records {
			fmt.Fprintf(&text, "<%d>\n", n)
		}
		write(t, filepath.Join(dir, "spool", "a.log"), text.String())
		write(t, filepath.Join(dir, "worker.py"), creditPython)
		config := write(t, filepath.Join(dir, "penstock.yaml"), fmt.Sprintf(`
state: ./state
pipelines:
  credit:
    source: { spool_dir: { path: ./spool, finished: keep, quiet_period: 10ms } }
    sink: { exec: { command: [python3, worker.py, "%d"], protocol: ndjson, workers: 2, in_flight: 200, env: [PATH, HOME] } }
    batch: { records: 10 }
    flow: { window: credit }
    retry: { base: 10ms }
`, allowed))
		told := filepath.Join(dir, "most.txt")
		killed := killing(t, config, func() int64 { return sizeOf(told) }, 600, 3)
		answered := 0
		for line := range strings.Lines(string(read(t, told))) {
			had, n, _ := strings.Cut(strings.TrimSpace(line), " ")
			number, err := strconv.Atoi(had)
			count, err2 := strconv.Atoi(n)
			if err != nil || err2 != nil {
				t.Fatalf("%q: %v, %v", line, err, err2)
			}
			most, answered = max(most, number), answered+count
		}
		t.Logf("credit %d: at most %d records at once, %d answered, %d kills", allowed, most,
			answered, killed)
		if answered < records || killed == 0 {
			t.Errorf("credit %d: %d of %d records were answered, %d kills", allowed, answered,
				records, killed)
		}
		return most
	}
	const small = 30
	if most := run(small); most > small || most < small/2 {
		t.Errorf("a worker with a credit of %d records had %d at once", small, most)
	}
	if most := run(0); most <= small {
		t.Errorf("a worker without a credit had %d records at once: the test shows nothing", most)
	}
}
