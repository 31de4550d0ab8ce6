//go:build unix

package exec_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-io/penstock/engine/connector/connectortest"
	"github.com/penstock-io/penstock/engine/kit/ndjson"
	"github.com/penstock-io/penstock/engine/processor/exec"
	"github.com/penstock-io/penstock/stream"
	"github.com/penstock-io/penstock/stream/streamtest"
	"github.com/penstock-io/penstock/supervise"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(connectortest.RunWaiting(m)) }

// processor returns a processor with a shell script as child.
func processor(t *testing.T, script string,
	change func(*exec.Options)) (*exec.Processor, *streamtest.Host) {
	t.Helper()
	o := exec.DefaultOptions()
	o.Command = []string{"/bin/sh", "-c", script}
	o.Timeout = 2 * time.Second
	if change != nil {
		change(o)
	}
	h := connectortest.NewHost(t)
	p, err := exec.New(*o, h)
	if err != nil {
		t.Fatal(err)
	}
	return p, h
}

// process returns the kept records as JSON, and the reasons of the dead letters.
func process(t *testing.T, p *exec.Processor, b *stream.Batch) (kept, dead []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Process(ctx, b); err != nil {
		t.Fatal(err)
	}
	for i := range b.Records {
		switch b.Records[i].State {
		case stream.Kept:
			kept = append(kept, string(ndjson.AppendRecord(nil, b, i)))
		case stream.Dead:
			dead = append(dead, string(b.Text(i))+": "+b.Reason(i).Error())
		}
	}
	return kept, dead
}

func messages(texts ...string) (all []string) {
	for _, s := range texts {
		all = append(all, `{"message":"`+s+`"}`)
	}
	return all
}

// TestLines checks protocol lines with one child for several batches.
func TestLines(t *testing.T) {
	t.Parallel()
	p, _ := processor(t, `n=0; while IFS= read -r l; do n=$((n+1)); echo "$n $l"; done`, nil)
	for k, want := range [][]string{messages("1 a", "2 b", "3 "), messages("4 a", "5 b", "6 ")} {
		b := streamtest.Lines("a", "b", "")
		if kept, dead := process(t, p, b); !slices.Equal(kept, want) || len(dead) > 0 {
			t.Errorf("batch %d: %q, %q", k, kept, dead)
		}
		if raw := string(b.AppendRaw(nil)); strings.Count(raw, "\n") != 3 || b.Origins != 3 {
			t.Errorf("raw: %q", raw)
		}
	}
}

// TestNDJSON checks that a child can replace a record by another one, by several, by none, or by a
// dead letter. Numbers must keep their digits.
func TestNDJSON(t *testing.T) {
	t.Parallel()
	answers := []string{
		`{"id":1,"records":[{"message":"one"},{"n":1.50,"s":"a\u00e9","o":{"b":[1]},"z":null,"t":true},` +
			`null,["x",{"message":"y"},"z"],"text",{}],"refused":[]}`,
		`{"error":"not now"}`,
		`{"records":["a","b"],"refused":[{"record":1,"reason":"no user"}]}`,
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "answers")
	if err := os.WriteFile(file, []byte(strings.Join(answers, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := processor(t, `exec 3<answers; while IFS= read -r l; do IFS= read -r a <&3; `+
		`printf '%s\n' "$a"; done`, func(o *exec.Options) {
		o.Protocol, o.Dir = exec.NDJSON, dir
	})
	b := streamtest.Lines("1", "2", "3", "4", "5", "6")
	kept, _ := process(t, p, b)
	want := slices.Concat(messages("one"),
		[]string{`{"n":1.50,"s":"aé","o":{"b":[1]},"z":null,"t":true}`},
		messages("x", "y", "z", "text"))
	if len(kept) != 7 || !slices.Equal(kept[:6], want) {
		t.Errorf("%q\nwant %q", kept, want)
	}
	if ids := string(b.AppendRecordID(nil, 5)); ids != "a@8.2" {
		t.Errorf("the third record made of the fourth has id %s", ids)
	}
	kept, dead := process(t, p, streamtest.Lines("1", "2"))
	if !slices.Equal(kept, messages("a")) || !slices.Equal(dead, []string{"2: no user"}) {
		t.Errorf("%q, %q", kept, dead)
	}
}

// TestDeaths checks a record that kills three children. It must be dead-lettered, wherever it is in
// a batch, and all other records must pass.
func TestDeaths(t *testing.T) {
	t.Parallel()
	const obey = `case $l in *exit*) exit 3;; *kill*) kill -9 $$;; *hang*) sleep 1000;; ` +
		`*noise*) echo "$l"; echo "$l"; echo "$l";; esac; `
	for _, c := range []struct{ word, reason string }{
		{"exit", "exit status 3"}, {"kill", "signal: killed"}, {"hang", "wrote nothing for 2s"},
	} {
		t.Run(c.word, func(t *testing.T) {
			t.Parallel()
			p, h := processor(t, `while IFS= read -r l; do `+obey+`echo "$l"; done`, nil)
			for range 2 {
				kept, dead := process(t, p, streamtest.Lines("a", "b", c.word, "d", "e"))
				if !slices.Equal(kept, messages("a", "b", "d", "e")) || len(dead) != 1 ||
					!strings.Contains(dead[0], c.word+": it killed 3 children;") ||
					!strings.Contains(dead[0], c.reason) {
					t.Errorf("%q, %q", kept, dead)
				}
			}
			if n := h.Counted("child_deaths"); n != 6 {
				t.Errorf("%d deaths for two poisonous records, want 6", n)
			}
		})
	}
	p, _ := processor(t, `while IFS= read -r l; do echo "{\"records\":[]}"; done`,
		func(o *exec.Options) { o.Protocol = exec.NDJSON })
	kept, dead := process(t, p, streamtest.Lines("a"))
	if len(kept) > 0 || len(dead) != 1 ||
		!strings.Contains(dead[0], "has 0 records, but the batch has 1") {
		t.Errorf("nonsense: %q, %q", kept, dead)
	}
}

// logHost is a Host with a log of its own.
type logHost struct {
	*streamtest.Host
	log *slog.Logger
}

func (h logHost) Log() *slog.Logger { return h.log }

// awaitedLog is a log that calls found when its text contains want.
type awaitedLog struct {
	mu    sync.Mutex // guards text
	text  strings.Builder
	want  string
	found func()
}

func (l *awaitedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	if strings.Contains(l.text.String(), l.want) {
		l.found()
	}
	return len(b), nil
}

// TestFailuresAreLogged checks that the log has the reason why a child processes nothing.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script, protocol, want string
	}{
		{"read l; echo no licence >&2; exit 3", exec.Lines,
			`sh: exit status 3; it said: \"no licence\"`},
		{`while read l; do echo '{"error":"no database"}'; done`, exec.NDJSON, "no database"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		log := &awaitedLog{want: c.want, found: cancel}
		h := logHost{connectortest.NewHost(t), slog.New(slog.NewTextHandler(log, nil))}
		o := exec.DefaultOptions()
		o.Command, o.Protocol = []string{"/bin/sh", "-c", c.script}, c.protocol
		p, err := exec.New(*o, h)
		if err != nil {
			t.Fatal(err)
		}
		_ = p.Process(ctx, streamtest.Lines("a")) // the second script never processes the record
		cancel()
		if err := h.Stop(); err != nil { // nothing is logged after this
			t.Error(err)
		}
		if !strings.Contains(log.text.String(), c.want) {
			t.Errorf("%s: the log lacks %q:\n%s", c.protocol, c.want, &log.text)
		}
	}
}

// TestNoProgram checks that a missing program stops the route with an error that names it.
func TestNoProgram(t *testing.T) {
	t.Parallel()
	p, _ := processor(t, "", func(o *exec.Options) { o.Command = []string{"no-such-program"} })
	err := p.Process(t.Context(), streamtest.Lines("a"))
	if err == nil || !strings.Contains(err.Error(), "no-such-program") ||
		!strings.Contains(err.Error(), "PATH") {
		t.Errorf("Process: %v", err)
	}
}

// TestContextEnds checks that a stop does not wait for a hanging child.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	p, _ := processor(t, `while :; do sleep 1000; done`,
		func(o *exec.Options) { o.Timeout, o.Grace = time.Hour, 0 })
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, enough)
	defer cancel()
	began := time.Now()
	if err := p.Process(ctx, streamtest.Lines("a")); !errors.Is(err, enough) ||
		time.Since(began) > patience/2 {
		t.Errorf("Process: %v after %v", err, time.Since(began))
	}
}

// bolt is a bolt of Storm's protocol, written in shell. The word of a tuple selects its action.
const bolt = `
say() { printf '%s\nend\n' "$1"; }
hear() { IFS= read -r m || exit 0; IFS= read -r e; }
hear; say '{"pid": 1}'
while hear; do
  id=$(printf '%s' "$m" | sed -n 's/.*"id":"\([^"]*\)".*/\1/p')
  case $m in
  *__heartbeat*) say '{"command":"sync"}';;
  *two*) say '{"command":"emit","anchors":["'$id'"],"tuple":["one",1],"need_task_ids":false}'
         say '{"command":"emit","tuple":["unanchored",2.50],"need_task_ids":false}'
         say '{"command":"ack","id":"'$id'"}';;
  *once*) if [ -e failed ]; then
            say '{"command":"emit","anchors":["'$id'"],"tuple":["again",1]}'; hear; say '{"command":"ack","id":"'$id'"}'
          else : >failed; say '{"command":"emit","anchors":["'$id'"],"tuple":["lost",1],"need_task_ids":false}'
            say '{"command":"fail","id":"'$id'"}'; fi;;
  *kill*) kill -9 $$;;
  *) say '{"command":"ack","id":"'$id'"}';;
  esac
done`

// TestStorm checks the tuples that a child emits for an acked tuple. They must become records with
// the origin of that tuple. Failed tuples must be sent again.
func TestStorm(t *testing.T) {
	t.Parallel()
	p, _ := processor(t, bolt, func(o *exec.Options) {
		o.Protocol, o.Fields, o.Dir, o.Pending = exec.Storm, []string{"word", "count"},
			t.TempDir(), 1
	})
	b := streamtest.Lines("two", "none", "once", "kill", "two")
	kept, dead := process(t, p, b)
	two := []string{`{"word":"one","count":1}`, `{"word":"unanchored","count":2.50}`}
	if want := slices.Concat(two, []string{`{"word":"again","count":1}`}, two); !slices.Equal(kept,
		want) {
		t.Errorf("%q\nwant %q", kept, want)
	}
	if len(dead) != 1 || !strings.Contains(dead[0], "kill: it killed 3 children;") {
		t.Errorf("dead: %q", dead)
	}
	if b.Records[1].Sub != 1 || b.Records[1].Origin != b.Records[0].Origin {
		t.Errorf("the second emit is %+v, want one more record of the first one's origin",
			b.Records[1])
	}
}

const echo = `while IFS= read -r l; do echo "$l"; done`

// TestStrayLines checks that an extra or a missing line ends the child and loses no record.
func TestStrayLines(t *testing.T) {
	t.Parallel()
	once := func(what, instead string) string {
		return `if [ -e done ]; then ` + instead + `; else : >done; ` + what + `; fi; `
	}
	loop := func(do string) string { return `while IFS= read -r l; do ` + do + `; done` }
	for name, script := range map[string]string{
		"banner of the first child": once("echo hello", ":") + echo,
		"late banner":               once("sleep .1; echo hello", ":") + echo,
		"line too many": loop(`echo "$l"; case $l in *42) ` +
			once("echo oops", ":") + `;; esac`),
		"line too many at the end": loop(`case $l in *-99) ` +
			once(`printf '%s\noops\n' "$l"`, `echo "$l"`) + `;; *) echo "$l";; esac`),
		"line too few, and it ends": loop(`case $l in *42) ` + once("exit 0", `echo "$l"`) +
			`;; *) echo "$l";; esac`),
		"line too few, and it is quiet": loop(`case $l in *42) ` + once(":", `echo "$l"`) +
			`;; *) echo "$l";; esac`),
		"a child for each 140 lines": `n=0; while [ $n -lt 140 ] && IFS= read -r l; ` +
			`do echo "$l"; n=$((n+1)); done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, h := processor(t, script, func(o *exec.Options) { o.Dir = t.TempDir() })
			for batch := range 4 {
				texts := make([]string, 100)
				for i := range texts {
					texts[i] = fmt.Sprintf("%d-%d", batch, i)
				}
				kept, dead := process(t, p, streamtest.Lines(texts...))
				if !slices.Equal(kept, messages(texts...)) || len(dead) > 0 {
					t.Errorf("batch %d: %d of %d records kept, %d dead", batch, len(kept),
						len(texts), len(dead))
				}
			}
			if faults := h.Faults(); len(faults) > 0 {
				t.Error(faults)
			}
		})
	}
}

// TestStrayLinesOfEveryChild checks a program that always writes a line before it is asked. The
// route must stop, and no record may become a dead letter.
func TestStrayLinesOfEveryChild(t *testing.T) {
	t.Parallel()
	p, h := processor(t, `echo ready; `+echo, nil)
	b := streamtest.Lines("a", "b")
	err := p.Process(t.Context(), b)
	if !errors.Is(err, supervise.ErrStop) || !strings.Contains(err.Error(), "unexpected line") ||
		!strings.Contains(err.Error(), "use protocol ndjson") {
		t.Errorf("Process: %v", err)
	}
	if b.Kept() != 2 || h.Counted("stray_lines") < 3 {
		t.Errorf("%d records kept, %d stray lines counted", b.Kept(), h.Counted("stray_lines"))
	}
}

// TestStrayLineAfterAnswer checks a child that writes one more line after a complete answer was
// used. The run must report a fault, because records may have got the results of other records.
// This must also hold after the last answer.
func TestStrayLineAfterAnswer(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"while it waits": `IFS= read -r l; echo "$l"; while [ ! -e go ]; do sleep .01; done; ` +
			`echo late; ` + echo,
		"at its end": echo + `; echo bye`,
	} {
		dir := t.TempDir()
		p, h := processor(t, script, func(o *exec.Options) { o.Dir = dir })
		if kept, _ := process(t, p, streamtest.Lines("a")); !slices.Equal(kept, messages("a")) {
			t.Errorf("%s: %q", name, kept)
		}
		if name == "while it waits" {
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			for h.Counted("stray_lines") == 0 && ctx.Err() == nil {
				runtime.Gosched()
			}
			cancel()
		}
		_ = h.Stop()
		if faults := h.Faults(); len(faults) != 1 ||
			!strings.Contains(faults[0].Error(), "records may be assigned to the wrong input") {
			t.Errorf("%s: faults: %v", name, faults)
		}
	}
}
