package multilang_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-io/penstock/engine/kit/child/multilang"
)

// line is one line of the transcript's streams.
type line struct {
	to   byte // '>' to the child, '<' from it, '!' the end
	text string
}

const endOfStream = "(end of stream)"

// sessions reads the recorded sessions in the folder that the environment variable PENSTOCK_RECIPES
// names. It returns the messages of each session, without the `end` lines.
func sessions(t *testing.T) [][]line {
	t.Helper()
	dir := os.Getenv("PENSTOCK_RECIPES")
	if dir == "" {
		t.Skip("skipped: PENSTOCK_RECIPES names no folder with a transcript of Storm's protocol")
	}
	text, err := os.ReadFile(filepath.Join(dir, "storm-multilang", "transcript.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all [][]line
	for s := range strings.Lines(string(text)) {
		s = strings.TrimSuffix(s, "\n")
		if strings.HasPrefix(s, "# Session") {
			all = append(all, nil)
		}
		fields := strings.SplitN(strings.TrimLeft(s, " "), " ", 3)
		if strings.HasPrefix(s, "#") || len(fields) < 3 || fields[2] == "end" {
			continue
		}
		all[len(all)-1] = append(all[len(all)-1], line{fields[1][0], fields[2]})
	}
	if len(all) != 6 {
		t.Fatalf("the transcript has %d sessions, want 6", len(all))
	}
	return all
}

func object(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// TestTranscript replays the recorded sessions of bolts, message by message. The bolt must send the
// same messages as Storm and accept all messages of the child, including those that crashed Storm's
// worker.
func TestTranscript(t *testing.T) {
	for n, lines := range sessions(t) {
		if strings.Contains(lines[2].text, "activate") {
			continue // a spout: TestTranscriptSpout
		}
		synctest.Test(t, func(t *testing.T) { speak(t, n+1, lines) })
	}
}

func speak(t *testing.T, session int, lines []line) {
	hello := object(t, lines[0].text).(map[string]any)
	c := newConversation(t, multilang.Options{
		Handshake: multilang.Handshake{
			PIDDir: hello["pidDir"].(string), Context: hello["context"].(map[string]any),
			Conf: hello["conf"].(map[string]any),
		},
		Component: "words", Task: 4, Pending: 100, Timeout: 6 * time.Second,
		KeepEmits: true,
	})
	ours := map[string]string{} // tuple ids of the bolt under test, by Storm's
	works := map[string]*multilang.Work{}
	for at, l := range lines {
		switch {
		case l.text == endOfStream && l.to == '>':
			// At this point of the recording, Storm's worker had crashed. The bolt must keep
			// running, with the answered tuples settled.
			if err := c.killed(); err != nil {
				t.Errorf("session %d: killed: %v", session, err)
			}
			c.end()
			check(t, session, lines[:at], works)
			return
		case l.text == endOfStream || l.to == '!':
			c.end()
		case l.to == '<':
			c.say(translate(l.text, ours))
		case strings.Contains(l.text, `"tuple"`) && !strings.Contains(l.text, "__heartbeat"):
			want := object(t, l.text).(map[string]any)
			id := want["id"].(string)
			values, _ := json.Marshal(want["tuple"])
			works[id] = multilang.NewWork(1)
			if err := c.bolt.Give(t.Context(),
				multilang.Tuple{Values: values, Of: works[id]}); err != nil {
				t.Fatalf("session %d: give %s: %v", session, values, err)
			}
			got := object(t, c.heard()).(map[string]any)
			ours[id] = got["id"].(string)
			got["id"] = id
			same(t, session, l.text, got)
		case session == 4 && at == len(lines)-1:
			// Storm halted at its last heartbeat; here the child is killed
		default: // the handshake, task ids, a heartbeat: compare the next message
			got := object(t, c.heard())
			if m, ok := got.(map[string]any); ok && m["stream"] == "__heartbeat" {
				m["id"] = object(t, l.text).(map[string]any)["id"]
			}
			same(t, session, l.text, got)
		}
	}
	if session == 4 { // the child hung: Storm halted, the bolt kills it
		time.Sleep(time.Second)
		synctest.Wait()
		if err := c.killed(); err == nil ||
			!strings.Contains(err.Error(), "no sign of life for 6s") {
			t.Errorf("session 4: killed for %v", err)
		}
	}
	c.end()
	check(t, session, lines, works)
}

func same(t *testing.T, session int, want string, got any) {
	t.Helper()
	if w := object(t, want); !reflect.DeepEqual(got, w) {
		t.Errorf("session %d: said %v, want %.300s", session, got, want)
	}
}

// translate replaces Storm's tuple ids in a message of the child by those of the bolt.
func translate(text string, ours map[string]string) string {
	for theirs, id := range ours {
		text = strings.ReplaceAll(text, `"`+theirs+`"`, `"`+id+`"`)
	}
	return text
}

// check compares the result of each tuple with the child's answers.
func check(t *testing.T, session int, lines []line, works map[string]*multilang.Work) {
	t.Helper()
	answered := map[string]string{}
	emits := map[string]int{}
	for _, l := range lines {
		if l.to != '<' || !strings.HasPrefix(l.text, "{") {
			continue
		}
		m, err := multilang.Parse([]byte(l.text))
		if err != nil {
			t.Fatal(err)
		}
		switch m.Command {
		case "ack", "fail":
			answered[string(m.ID)] = m.Command
		case "emit":
			if len(m.Anchors) > 0 {
				emits[string(m.Anchors[0])]++
			}
		}
	}
	for id, w := range works {
		if w.Acked[0] != (answered[id] == "ack") || w.Failed[0] != (answered[id] == "fail") ||
			(w.Err != nil) != (answered[id] == "") {
			t.Errorf("session %d: tuple %s was answered %q; acked %v, failed %v, %v",
				session, id, answered[id], w.Acked[0], w.Failed[0], w.Err)
		}
		// A tuple can have one additional emit, which had no anchor.
		if n := emits[id]; len(w.Emits) < n || len(w.Emits) > n+1 {
			t.Errorf("session %d: tuple %s has %d emits, want %d", session, id, len(w.Emits), n)
		}
	}
}

// TestTranscriptSpout checks that every message of a spout can be parsed, although penstock runs
// only bolts.
func TestTranscriptSpout(t *testing.T) {
	n := 0
	for _, l := range sessions(t)[1] {
		if l.to == '<' && l.text != endOfStream {
			n++
			if m, err := multilang.Parse([]byte(l.text)); err != nil ||
				m.Command == "" && m.PID == nil {
				t.Errorf("%s: %+v, %v", l.text, m, err)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d messages", n)
	}
}
