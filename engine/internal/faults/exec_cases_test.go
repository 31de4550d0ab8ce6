//go:build linux

package faults

import (
	"fmt"
	"os"
	"strings"
)

// script is a shell script that is a faulty worker. Three words in its text are replaced: STORE by
// a command that stores standard input, GOOD by a correct worker, and ECHO by a correct filter.
type script struct {
	name   string
	text   string
	effect effect
}

const (
	storeInput = `f=$(mktemp got/part.XXXXXX) && cat > $f && mv $f got/done.${f##*.}`
	echoLines  = `while IFS= read -r l; do printf '%s\n' "$l"; done`
)

// badWorkers are faulty workers of the sink exec that use protocol lines. A batch has 200 KB, which
// is more than a pipe holds, so the write to a worker that does not read blocks.
var badWorkers = []script{
	{"exits 0 without reading", `exit 0`, blocks},
	{"closes its input and exits 0", `exec <&-; exit 0`, blocks},
	{"closes its input, sleeps and exits 0", `exec <&-; sleep 0.3; exit 0`, blocks},
	{"reads one line and exits 0", `head -n 1 >/dev/null; exit 0`, blocks},
	{"reads half and exits 0", `head -c 100000 >/dev/null; exit 0`, blocks},
	{"reads nearly all and exits 0", `head -c 190000 >/dev/null; exit 0`, blocks},
	{"exits 0 and leaves the input to a child", `sleep 0.2 & exit 0`, blocks},
	{"exits 1", `exit 1`, blocks},
	{"exits 1 after storing", `STORE; exit 1`, blocks},
	{"exits 2 in the middle", `head -c 100000 >/dev/null; exit 2`, blocks},
	{"exits 255", `cat >/dev/null; exit 255`, blocks},
	{"exits 75", `exit 75`, blocks},
	{"exits 64", `exit 64`, pauses},
	{"exits 78 after storing", `STORE; exit 78`, pauses},
	{"exits 126", `exit 126`, pauses},
	{"exits 127", `exit 127`, pauses},
	{"exits 65", `cat >/dev/null; exit 65`, rejects},
	{"kills itself", `kill -9 $$`, poisons},
	{"kills itself after storing", `STORE; kill -9 $$`, poisons},
	{"ends by SIGTERM in the middle", `head -c 100000 >/dev/null; kill $$`, poisons},
	{"ends by SIGPIPE", `kill -PIPE $$`, poisons},
	{"stops itself", `kill -STOP $$; exit 0`, blocks},
	{"hangs without reading", `exec sleep 60`, blocks},
	{"hangs after storing", `STORE; exec sleep 60`, blocks},
	{"hangs and ignores SIGTERM", `trap '' TERM; head -c 10 >/dev/null; while :; do sleep 1; done`,
		blocks},
	{"floods stdout", `STORE; head -c 3000000 /dev/zero; exit 0`, passes},
	{"floods stderr", `STORE; head -c 3000000 /dev/zero >&2; exit 0`, passes},
	{"closes stdout and stderr", `exec >&- 2>&-; GOOD`, passes},
	{"stores slowly", `sleep 0.02; GOOD`, passes},
	{"leaves a background process", `STORE; sleep 20 & exit 0`, passes},
}

// badFilters are processors of protocol lines.
var badFilters = []script{
	{"a banner", `echo hello; ECHO`, blocks},
	{"two banners", `echo one; echo two; ECHO`, blocks},
	{"a last word", `ECHO; echo bye`, decides},
	{"every line twice", `while IFS= read -r l; do echo "$l"; echo "$l"; done`, blocks},
	{"drops every tenth line", `n=0; while IFS= read -r l; do n=$((n+1)); ` +
		`[ $((n%10)) = 0 ] || echo "$l"; done`,
		blocks},
	{"drops one line", `IFS= read -r l; ECHO`, blocks},
	{"an extra line in the middle",
		`n=0; while IFS= read -r l; do n=$((n+1)); echo "$l"; ` +
			`[ $n != 50 ] || echo "debug $n"; done`, blocks},
	{"exits 0 at once", `exit 0`, blocks},
	{"exits 3 at once", `exit 3`, blocks},
	{"dies at line 30", `head -n 30; kill -9 $$`, decides},
	{"exits 1 at line 30", `n=0; while IFS= read -r l; do n=$((n+1)); [ $n -lt 30 ] || exit 1; ` +
		`echo "$l"; done`,
		decides},
	{"never answers", `exec sleep 60`, blocks},
	{"never reads", `exec 0<&-; exec sleep 60`, blocks},
	{"closes its output", `exec >&-; cat >/dev/null`, blocks},
	{"answers without the last line end", `while IFS= read -r l; do echo "$l"; done | head -c -1`,
		decides},
	{"floods stderr", `head -c 1000000 /dev/zero | tr '\0' 'x' >&2; ECHO`, passes},
	{"stops itself", `kill -STOP $$; ECHO`, blocks},
	{"carriage returns", `while IFS= read -r l; do printf '%s\r\n' "$l"; done`, decides},
	{"endless output", `exec yes`, blocks},
	{"echoes reordered", `exec tac`, decides},
}

func execCases() (table []faultCase) {
	for i, w := range badWorkers {
		for _, when := range []schedule{firstOne, always} {
			if w.effect == passes && when.name != "always" {
				continue
			}
			table = append(table, workerCase(w, when, sources[i%len(sources)]))
		}
	}
	for i, f := range badFilters {
		for _, when := range []schedule{firstOne, always} {
			table = append(table, filterCase(f, when, sources[i%2]))
		}
	}
	return append(table, programCases()...)
}

func workerCase(w script, when schedule, from source) faultCase {
	d := delivery{
		source: from, count: 1000, size: 2000,
		sink:   `exec: { command: [bash, ./worker.sh], workers: 2, grace: 1s }`,
		stored: storedIn("got/done.*"),
		prepare: func(r *rig) {
			r.write("got/README", "")
			text := "[ ! -e healed ] || { " + storeInput + "; exit; }\n"
			if when.name != "always" {
				text += "mkdir struck 2>/dev/null || { " + storeInput + "; exit; }\n"
			}
			r.write("worker.sh", text+expand(w.text))
		},
		heal: func(r *rig) { r.write("healed", "") },
	}
	return d.as(fmt.Sprintf("exec-sink/%s/%s/%s", w.name, when.name, from.name), w.effect, when)
}

func filterCase(f script, when schedule, from source) faultCase {
	d := delivery{
		source: from, processors: `{ exec: { command: [bash, ./filter.sh], protocol: ` +
			`lines, timeout: 2s, grace: 1s } }`,
		sink: `file: { path: ./out.log, format: raw }`, stored: storedIn("out.log"),
		exactlyOnce: true,
		prepare: func(r *rig) {
			text := "[ ! -e healed ] || { " + echoLines + "; exit; }\n"
			if when.name != "always" {
				text += "mkdir struck 2>/dev/null || { " + echoLines + "; exit; }\n"
			}
			r.write("filter.sh", text+expand(f.text))
		},
		heal: func(r *rig) { r.write("healed", "") },
	}
	return d.as(fmt.Sprintf("exec-filter/%s/%s/%s", f.name, when.name, from.name), f.effect, when)
}

// expand replaces the words in capitals (STORE, GOOD and ECHO) in a script.
func expand(text string) string {
	return strings.NewReplacer("STORE", storeInput, "GOOD", storeInput+"; exit 0", "ECHO",
		echoLines).Replace(text) +
		"\n"
}

// programCases are workers that cannot be started.
func programCases() (table []faultCase) {
	for _, p := range []struct{ name, command string }{
		{"missing program", `./none`},
		{"program is a folder", `./got`},
		{"program without permission", `./README`},
		{"program without an interpreter", `./noshebang`},
	} {
		d := delivery{
			count: 500, sink: `exec: { command: ["` + p.command + `"] }`,
			stored: storedIn("got/done.*"),
			prepare: func(r *rig) {
				r.write("got/README", "")
				r.write("README", "")
				r.write("noshebang", "#!/nowhere/sh\n")
				r.check(os.Chmod(r.path("noshebang"), 0o755))
			},
			keepsFailing: true,
		}
		table = append(table, d.as("exec-program/"+p.name, blocks, always))
	}
	return table
}
